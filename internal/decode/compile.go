package decode

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// source is one distinct place that values come from; its number is its slot.
type source struct {
	path dataset.Path
	star bool
	text string // the path as a spec writes it
}

// column is one column of the spec, ready to be filled.
type column struct {
	name    string
	dtype   dataset.DType
	size    int // bytes of an element
	index   int // in the frame's layout
	weights int // index of its weights column, or -1
	sources []int
	run     bool // sources follow each other: sources[i] = sources[0] + i
	fast    opKind
	key     string // of a folder key=value of the file's path; "": not from the path
	ragged  bool
	feature bool // of a tf.Example
	shaped  bool // a list of a fixed length, width values
	walked  bool // filled by the walk over a record with a schema
	width   int  // with feature: elements of a row
	hash    *hasher
	mask    bool
	split   byte // 0: none
	weight  byte // separates a value from its weight; 0: none
	max     int  // values of a row; math.MaxInt without a limit

	hasDefault   bool
	defaultBits  uint64 // numbers and bools, as they lie in the frame
	defaultBytes []byte // strings

	gather *gather // of a shaped column: what a walk has found of a row

	dicts []any // of rows of columns: by source, the dictionary that was converted last

	errors uint64 // values replaced by the default
}

type options struct {
	columns []string
	header  []byte
	fields  []string
	schemas Schemas
	beside  *Decoder
}

// Option changes what Compile makes of a spec.
type Option func(*options)

// WithColumns keeps only these columns (and their weights), in the spec's order;
// nil keeps all. OPEN's `columns`.
func WithColumns(names []string) Option { return func(o *options) { o.columns = names } }

// Beside is a decoder whose builders this one appends to as well: both make the same
// columns, of records of another form.
func Beside(other *Decoder) Option { return func(o *options) { o.beside = other } }

// withHeader (or Bind) names the fields of csv and tsv by a file's first line, for a spec
// with header: true. Decoders of one spec with different headers make the same
// frames and may append to the same Builder.
func withHeader(line []byte) Option { return func(o *options) { o.header = line } }

// Compile makes a Decoder of a validated spec. Errors name the column.
func Compile(spec *dataset.Spec, opts ...Option) (*Decoder, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	ds := &spec.Decode
	d := &Decoder{format: ds.Format, lenient: ds.OnError == "default", o: o, spec: spec, maxFrame: frame.MaxFrame, recordSize: int(ds.RecordSize)}
	if err := d.separators(ds, &o); err != nil {
		return nil, err
	}
	schema, err := d.choose(spec, o.columns)
	if err != nil {
		return nil, err
	}
	d.schema = schema
	if d.layout, err = frame.NewLayout(schema.Fields); err != nil {
		return nil, err
	}
	if o.beside != nil {
		if !reflect.DeepEqual(d.layout.Columns, o.beside.layout.Columns) {
			return nil, fmt.Errorf("the records of both inputs must make the same columns, and these make others")
		}
		d.layout = o.beside.layout
	}
	if ds.EventTime != "" {
		p, err := dataset.ParsePath(ds.Format, ds.EventTime)
		if err != nil {
			return nil, fmt.Errorf("decode.event_time: %w", err)
		}
		if p.Kind == dataset.FromPath {
			d.fromPath.timeKey = p.Name
			return d, d.plan()
		}
		n, err := d.source(p)
		if err != nil {
			return nil, fmt.Errorf("decode.event_time: %w", err)
		}
		d.eventTime = &column{name: "event_time", sources: []int{n}, feature: ds.Features() && p.Kind == dataset.Pointer}
	}
	return d, d.plan()
}

// plan derives from the columns how records are read.
func (d *Decoder) plan() error {
	d.finishPlan()
	if d.spec.Decode.Written() {
		return d.planWriters()
	}
	return nil
}

// separators sets the separators, and the names of fields.
func (d *Decoder) separators(ds *dataset.DecodeSpec, o *options) error {
	if ds.Format != "csv" && ds.Format != "tsv" {
		return nil
	}
	d.delimiter, d.quote = ',', '"'
	if ds.Format == "tsv" {
		d.delimiter, d.quote = '\t', 0
	}
	if ds.Delimiter != "" {
		d.delimiter = ds.Delimiter[0]
	}
	switch {
	case ds.Quote == dataset.NoQuote:
		d.quote = 0
	case ds.Quote != "":
		d.quote = ds.Quote[0]
	}
	o.fields = ds.Fields
	if ds.Header && o.header != nil {
		names, err := d.splitHeader(o.header)
		if err != nil {
			return err
		}
		o.fields = names
	}
	d.fieldNames = o.fields
	return nil
}

// splitHeader reads a header line as a record of this format.
func (d *Decoder) splitHeader(line []byte) ([]string, error) {
	line = []byte(strings.TrimPrefix(string(line), "\ufeff"))
	h := &Decoder{format: d.format, delimiter: d.delimiter, quote: d.quote}
	line = line[:len(line)-lineEnd(line)]
	h.take(line, 0, len(line))
	if f := h.split(true); f != nil {
		return nil, fmt.Errorf("header line %q: %s", excerpt(line), f.reason)
	}
	names := make([]string, len(h.slots))
	for i, s := range h.slots {
		names[i] = string(h.bytesOf(s))
		if names[i] != "" && slices.Contains(names[:i], names[i]) { // one without a name is read by its number
			return nil, fmt.Errorf("header line %q: two fields are called %q", excerpt(line), names[i])
		}
	}
	return names, nil
}

// choose compiles the asked columns and returns their schema.
func (d *Decoder) choose(spec *dataset.Spec, names []string) (dataset.Schema, error) {
	var schema dataset.Schema
	for i := range spec.Decode.Columns {
		c := &spec.Decode.Columns[i]
		weights := dataset.WeightsName(c.Name)
		if names != nil && !slices.Contains(names, c.Name) && (c.Weights == "" || !slices.Contains(names, weights)) {
			continue
		}
		one := dataset.Spec{Name: spec.Name, Decode: dataset.DecodeSpec{Format: spec.Decode.Format, Columns: []dataset.Column{*c}}}
		fields, err := one.Schema()
		if err != nil {
			return schema, err
		}
		col, err := d.compileColumn(spec, c, fields.Fields[0], len(schema.Fields))
		if err != nil {
			return schema, fmt.Errorf("dataset %s: column %s: %w", spec.Name, c.Name, err)
		}
		if col.key == "" {
			d.columns = append(d.columns, col)
		} else {
			d.fromPath.columns = append(d.fromPath.columns, &pathColumn{column: col})
		}
		schema.Fields = append(schema.Fields, fields.Fields...)
	}
	for _, n := range names {
		if !slices.Contains(schema.Names(), n) {
			all, _ := spec.Schema()
			return schema, fmt.Errorf("dataset %s has no column %q; it has %s", spec.Name, n, strings.Join(all.Names(), ", "))
		}
	}
	return schema, nil
}

func (d *Decoder) compileColumn(spec *dataset.Spec, c *dataset.Column, f dataset.Field, index int) (*column, error) {
	col := &column{name: c.Name, dtype: f.DType, size: max(f.DType.Size(), 1), index: index, weights: -1, ragged: f.Ragged, mask: f.Mask, max: math.MaxInt}
	if c.Weights != "" {
		col.weights, col.weight = index+1, c.Weights[0]
	}
	if c.Split != "" {
		col.split = c.Split[0]
	}
	if c.Max > 0 {
		col.max = c.Max
	}
	if c.Hash != nil {
		if f.DType != dataset.Int64 || c.Hash.Buckets < 0 {
			return nil, fmt.Errorf("hash gives int64 and buckets of 0 or more")
		}
		col.hash = newHasher(c.Hash.Buckets, c.Hash.Salt)
	}
	if err := col.setDefault(c); err != nil {
		return nil, err
	}
	if c.InRecord(spec.Decode.Format) {
		return col, d.compilePiece(c, col)
	}
	paths, err := c.ExpandPaths(spec.Decode.Format)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if p.Kind == dataset.FromPath {
			col.key = p.Name
			return col, nil
		}
		n, err := d.source(p)
		if err != nil {
			return nil, err
		}
		col.sources = append(col.sources, n)
	}
	if col.feature = spec.Decode.Features() && paths[0].Kind == dataset.Pointer; col.feature {
		col.width = product(f.Shape)
	}
	if col.shaped = !col.feature && c.Paths == nil && len(f.Shape) > 0; col.shaped {
		col.width = product(f.Shape)
		col.gather = &gather{}
	}
	col.fast, col.run = col.fastKind(), true
	for i, n := range col.sources {
		col.run = col.run && n == col.sources[0]+i
	}
	return col, nil
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (c *column) setDefault(spec *dataset.Column) error {
	if spec.Default == nil {
		return nil
	}
	v, err := dataset.ParseValue(c.dtype, *spec.Default)
	if err != nil {
		return fmt.Errorf("default %q: %w", *spec.Default, err)
	}
	c.hasDefault = true
	switch v := v.(type) {
	case bool:
		if v {
			c.defaultBits = 1
		}
	case int32:
		c.defaultBits = uint64(uint32(v))
	case int64:
		c.defaultBits = uint64(v)
	case float32:
		c.defaultBits = uint64(math.Float32bits(v))
	case float64:
		c.defaultBits = math.Float64bits(v)
	case string:
		c.defaultBytes = []byte(v)
	case []byte:
		c.defaultBytes = v
	}
	return nil
}

// NoField means that a column names a field that the header does not have.
type NoField struct{ which string }

func (e *NoField) Error() string { return "there is no field " + e.which }

// source gives the slot of a path; paths that are the same share one.
func (d *Decoder) source(p dataset.Path) (int, error) {
	if p.Kind == dataset.FieldName {
		n := slices.Index(d.fieldNames, p.Name)
		if n < 0 {
			if d.spec.Decode.Header && d.o.header == nil {
				d.unbound = true // the names come with each file: Bind
				d.sources = append(d.sources, source{path: p})
				return len(d.sources) - 1, nil
			}
			known := strings.Join(d.fieldNames, ", ")
			if near := dataset.Nearest(p.Name, d.fieldNames); near != "" {
				known = "did you mean " + near + "? fields are " + known
			}
			return 0, &NoField{fmt.Sprintf("%q; %s", p.Name, excerpt([]byte(known)))}
		}
		p = dataset.Path{Kind: dataset.FieldNumber, Number: n, Name: p.Name}
	}
	if p.Kind == dataset.FieldNumber && len(d.fieldNames) > 0 && p.Number >= len(d.fieldNames) {
		return 0, &NoField{fmt.Sprintf("%d; the header names %d fields, from 0", p.Number, len(d.fieldNames))}
	}
	for i := range d.sources {
		if samePath(d.sources[i].path, p) {
			return i, nil
		}
	}
	d.sources = append(d.sources, source{path: p, star: p.Ragged(), text: p.String()})
	return len(d.sources) - 1, nil
}

func samePath(a, b dataset.Path) bool {
	if a.Kind == dataset.FieldNumber && b.Kind == dataset.FieldNumber {
		return a.Number == b.Number
	}
	return a.Kind == b.Kind && a.Name == b.Name && slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Stars, b.Stars)
}
