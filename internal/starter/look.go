package starter

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/parquet"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

const (
	lookedAt = 2_000   // records whose values are looked at one by one
	tried    = 100_000 // records that the spec is tried on
)

// Plan is a spec for some data, and what a program needs to know of it.
type Plan struct {
	Name    string
	About   string   // what was looked at, for people
	Records int64    // that the spec was tried on
	Notes   []string // what the user should know

	origin    *origin
	layout    layout
	eventTime string
	columns   []column
	label     int // of columns; -1: none
	looked    int
}

// Openers open what is looked at.
type Openers struct {
	Source     sample.Opener
	Bucket     func(connection, url string) (storage.Objects, error)
	Connection string // the operator's connection for data on S3; "": settings come from the environment
}

const byteOrderMark = "\xef\xbb\xbf"

// Look looks at DATA: a file, a folder, a place on S3 or a topic. folder is where the spec
// will lie. name is the name of the dataset; "": it is made from DATA.
func Look(ctx context.Context, data, folder, name string, by Openers) (*Plan, error) {
	open := by.Source
	o, err := parseOrigin(ctx, data, folder, by)
	if err != nil {
		return nil, err
	}
	p := &Plan{Name: o.name, About: o.about, origin: o, label: -1}
	if name != "" {
		p.Name = name
	}
	var t *table
	switch o.format {
	case "parquet":
		t, err = p.lookAtColumns(ctx, folder, open)
	case "tfrecord":
		t, err = p.lookAtFeatures(ctx, folder, open)
	default:
		t, err = p.lookAtRecords(ctx, folder, open)
	}
	if err != nil {
		return nil, err
	}
	p.layout, p.looked = t.layout, t.rows
	p.choose(t)
	return p, p.try(ctx, folder, open)
}

// lookAtRecords reads the first records as they are.
func (p *Plan) lookAtRecords(ctx context.Context, folder string, open sample.Opener) (*table, error) {
	as := "lines"
	if p.origin.topic {
		as = "raw"
	}
	spec, err := p.parse(p.source()+"decode: "+as+"\n", folder)
	if err != nil {
		return nil, err
	}
	records, err := sample.Records(ctx, spec, open, lookedAt)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, advice.NotFound.Errorf("write some records first, and try again", "%s is empty: there is nothing to look at", p.About)
	}
	values := make([][]byte, len(records))
	for i, r := range records {
		values[i] = r.Value
		if r.Offset == 0 && !p.origin.topic { // a reader of CSV, TSV or JSON skips it too
			values[i] = bytes.TrimPrefix(r.Value, []byte(byteOrderMark))
		}
	}
	return tableOf(values, p.origin.format, p.About, p.origin.topic)
}

// lookAtColumns reads the schema of a Parquet file and the first rows.
func (p *Plan) lookAtColumns(ctx context.Context, folder string, open sample.Opener) (*table, error) {
	leaves, err := leavesOf(ctx, p.origin.part)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.origin.file, err)
	}
	t := &table{layout: layout{format: "parquet"}}
	var b strings.Builder
	b.WriteString(p.source() + "decode:\n  format: parquet\n  columns:\n")
	for i, l := range leaves {
		f := &field{name: l.Name, path: l.Path}
		if strings.Count(l.Path, "/") == 1 && plain(l.Name) == l.Name && !isNumber(l.Name) {
			f.path = l.Name
		}
		f.seen.ragged = l.List
		f.seen.clock = l.Ticks > 0
		f.seen.real = l.Kind == sources.Float32Values || l.Kind == sources.Float64Values
		f.seen.single = l.Kind == sources.Float32Values
		f.seen.unsigned = l.Kind == sources.Uint64Values
		t.fields = append(t.fields, f)
		dtype, mask := dtypeOf(l.Kind), ", missing: mask"
		if f.seen.unsigned {
			dtype = "float64" // it holds all of them, large ones not exactly
		}
		if l.List {
			mask = map[string]string{"bool": ", default: false", "bytes": ", default: \"\""}[dtypeOf(l.Kind)]
			if mask == "" {
				mask = ", default: 0"
			}
		}
		fmt.Fprintf(&b, "    - {name: c%d, path: %s, dtype: %s%s}\n", i, plain(f.path), dtype, mask)
	}
	spec, err := p.parse(b.String(), folder)
	if err != nil {
		return nil, err
	}
	rows, err := sample.First(ctx, spec, open, lookedAt, nil)
	if err != nil {
		return nil, err
	}
	for _, row := range rows.Values() {
		for i, v := range row {
			t.fields[i].seen.cell(v)
		}
	}
	t.rows = len(rows.Values())
	for _, f := range t.fields {
		f.seen.total = t.rows
	}
	if t.rows == 0 {
		return nil, advice.NotFound.Errorf("", "%s has no row: there is nothing to look at", p.About)
	}
	return t, nil
}

func leavesOf(ctx context.Context, open func(context.Context) (*part, error)) ([]parquet.Leaf, error) {
	f, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	file, err := parquet.Open(f, f.size)
	if err != nil {
		return nil, err
	}
	return file.Leaves(), nil
}

// choose makes columns of the fields.
func (p *Plan) choose(t *table) {
	var fields []*field
	used := map[string]bool{}
	for i, f := range t.fields {
		if p.eventTime == "" && isEventTime(f) {
			p.eventTime = f.path
			continue
		}
		c, ok := columnOf(f, i)
		if !ok {
			if f.seen.missing+f.seen.others > 0 || f.seen.total > 0 {
				p.Notes = append(p.Notes, fmt.Sprintf("field %s is left out: it has no value that a column can hold, in %d records", orPath(f), t.rows))
			}
			continue
		}
		if f.seen.yesNo() {
			p.Notes = append(p.Notes, fmt.Sprintf("field %s holds words for yes and no: they are hashed. To predict it, write them as true and false, or 1 and 0", orPath(f)))
		}
		if f.seen.spaced > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("field %s has numbers with a space in front, which are read as text: `sed 's/, /,/g' IN > OUT` takes the spaces away", orPath(f)))
		}
		c.name = unused(c.name, used)
		p.columns, fields = append(p.columns, c), append(fields, f)
	}
	if p.label = labelOf(p.columns, fields); p.label >= 0 {
		p.columns[p.label].role = label
	}
	for i := range p.origin.keyed {
		if len(p.columns) == 0 { // whole lines
			return
		}
		if c, ok := p.origin.keyed[i].column(len(p.columns)); ok {
			c.name = unused(c.name, used)
			p.columns = append(p.columns, c)
		}
	}
}

// unused returns the name, or if a column has it the first of NAME_2, NAME_3 ... that is free.
func unused(name string, used map[string]bool) string {
	base := name
	for n := 2; used[name]; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	used[name] = true
	return name
}

func orPath(f *field) string {
	if f.name != "" {
		return f.name
	}
	return f.path
}

func (p *Plan) parse(text, folder string) (*dataset.Spec, error) {
	docs, err := dataset.Documents([]byte(text), "the spec", folder)
	if err != nil {
		return nil, err
	}
	return docs[0].Spec, nil
}
