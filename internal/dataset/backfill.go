package dataset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/sources"
)

// Backfill is a second, bounded input of a dataset: the history, in files, of what its live
// source brings from now on. Both inputs give the same columns.
type Backfill struct {
	Source Part       // written under the name of its kind
	Decode DecodeSpec // without on_error, which is the dataset's
}

// Inputs are the inputs of a dataset, each as a spec with one source: the backfill, if there
// is one, and the spec's source. Code that opens, lists or decodes records takes one of them.
func (s *Spec) Inputs() []*Spec {
	if s.Backfill == nil {
		return []*Spec{s}
	}
	old, live := *s, *s
	old.Backfill, old.CatchUp, live.Backfill, live.CatchUp.Order = nil, CatchUp{}, nil, ""
	old.Source, old.Decode = s.Backfill.Source, s.Backfill.Decode
	old.Decode.OnError = s.Decode.OnError
	old.Decode.Columns = inOrderOf(s.Decode.Columns, old.Decode.Columns)
	old.Lease.Initial, old.Lease.Min, old.Lease.Max = unset, unset, unset
	old.fillSizes()
	return []*Spec{&old, &live}
}

// IsBackfill says whether a partition is of the backfill. Its identity begins with the name
// of its source's kind.
func (s *Spec) IsBackfill(identity string) bool {
	return s.Backfill != nil && sources.KindOf(identity) == s.Backfill.Source.Kind().Name
}

// InputOf returns the input to which a partition belongs.
func (s *Spec) InputOf(identity string) *Spec {
	all := s.Inputs()
	if s.IsBackfill(identity) {
		return all[0]
	}
	return all[len(all)-1]
}

func (r *Reader) backfill(n *yaml.Node, path string, s *Spec) {
	b := &Backfill{}
	s.Backfill = b
	members := []Member{{"decode", func(n *yaml.Node, path string) { r.decode(n, path, &b.Decode) }}}
	for _, k := range kinds {
		if !k.Backfills {
			continue
		}
		members = append(members, Member{k.Name, func(n *yaml.Node, path string) {
			if b.Source != nil {
				r.Fail(n, path, "does not go with "+b.Source.Kind().Name+": a backfill has one source", "remove one of them")
				return
			}
			b.Source = k.New()
			r.Mapping(n, path, b.Source.Members(r))
		}})
	}
	r.Mapping(n, path, members)
}

// fill sets the defaults of a backfill: what its decode block leaves out is taken from the
// dataset's.
func (b *Backfill) fill(s *Spec) {
	if b.Source != nil {
		b.Source.Fill()
	}
	d := &b.Decode
	if d.Format == "" {
		b.sameFormat(&s.Decode)
	}
	if len(d.Columns) == 0 {
		d.Columns = slices.Clone(s.Decode.Columns)
		d.EventTime = orElse(d.EventTime, s.Decode.EventTime)
	}
	d.fill()
}

// sameFormat takes what the block leaves out from the decode block of the live source.
func (b *Backfill) sameFormat(live *DecodeSpec) {
	d, was := &b.Decode, b.Decode
	*d = *live
	if d.Header, d.Fields = was.Header, orList(was.Fields, d.Fields); d.Header {
		d.Fields = was.Fields // each file's first line names them
	}
	d.Delimiter, d.Quote, d.EventTime = orElse(was.Delimiter, d.Delimiter), orElse(was.Quote, d.Quote), orElse(was.EventTime, d.EventTime)
	if d.OnError = was.OnError; len(was.Columns) > 0 {
		d.Columns, d.RecordSize = was.Columns, 0
	}
	d.RecordSize = cmp.Or(was.RecordSize, d.RecordSize)
	if b.Source != nil && b.Source.Kind().Paths { // no file names an id, and each Avro file has its schema
		d.Registry = nil
		if d.Format == "avro" {
			d.Schema = nil
		}
	}
	if was.Registry != nil || was.Schema != nil {
		d.Registry, d.Schema, d.Message = was.Registry, was.Schema, ""
	}
	d.Message = orElse(was.Message, d.Message)
}

// inOrderOf sorts columns as others with the same names are sorted.
func inOrderOf(others, columns []Column) []Column {
	at := map[string]int{}
	for i, c := range others {
		at[c.Name] = i
	}
	sorted := slices.Clone(columns)
	slices.SortStableFunc(sorted, func(a, b Column) int { return at[a.Name] - at[b.Name] })
	return sorted
}

func orList(list, other []string) []string {
	if len(list) == 0 {
		return other
	}
	return list
}

// backfill checks the block, and that it makes the dataset's columns.
func (c *Check) backfill(s *Spec) {
	b := s.Backfill
	if b == nil {
		return
	}
	if b.Source == nil {
		c.Fail("backfill", "", "names no source: it says where the history is", "as in files: {root: /data/clicks}")
		return
	}
	if s.Source == nil {
		return // the missing source is reported elsewhere, and nothing else
	}
	if s.Source.Kind().Name == b.Source.Kind().Name {
		hint := "remove it"
		if k := b.Source.Kind(); toGoOn(k) != "" {
			hint = k.Name + " that come later need no backfill: write one " + k.Name + ": with " + k.End.Field + ": " + k.End.Never
		}
		c.Fail("backfill", "", "comes before a live source of another kind, and both are "+b.Source.Kind().Name, hint)
		return
	}
	if !s.Live() {
		c.Fail("backfill", "", "comes before a source without an end, and "+s.Source.Kind().Name+" has one here", toGoOn(s.Source.Kind()))
	}
	if l, ok := s.Landing(); ok && l.Ends {
		c.Fail("backfill", "", "comes before a source without an end, and producers may end this one", "remove "+endField(s.Source.Kind()))
	}
	if b.Source.Traits().Live {
		k, hint := b.Source.Kind(), "remove it"
		if k.End.Fixed != "" {
			hint = "write " + k.End.Fixed
		}
		c.Fail("backfill."+endField(k), k.End.Never, "does not go with backfill: the history ends where the live source begins", hint)
	}
	if b.Decode.OnError != "" {
		c.Fail("backfill.decode.on_error", b.Decode.OnError, "is the same for all records of a dataset", "set decode.on_error")
	}
	of := s.Inputs()[0]
	of.Decode.Columns = b.Decode.Columns // as they were written: errors name their place
	in := &Check{file: c.file, lines: c.lines, under: "backfill.", source: of.Kind(), maxRecord: b.Source.Traits().MaxRecord}
	b.Source.Check(in, of)
	in.reach(of)
	in.decode(&of.Decode)
	if c.errs = append(c.errs, in.errs...); len(in.errs) == 0 {
		c.sameColumns(s, of)
	}
}

// sameColumns names each column that the backfill makes otherwise than the live source.
func (c *Check) sameColumns(s, of *Spec) {
	live, err1 := s.Schema()
	old, err2 := of.Schema()
	if err1 != nil || err2 != nil {
		return // it is told elsewhere
	}
	const field = "backfill.decode.columns"
	for _, f := range live.Fields {
		i := slices.IndexFunc(old.Fields, func(o Field) bool { return o.Name == f.Name })
		if i < 0 {
			c.Fail(field, "", "has no column "+f.Name+", which the dataset has", "files and topic must give the same columns")
			continue
		}
		if a, b := f.text(), old.Fields[i].text(); a != b {
			c.Fail(field, "", fmt.Sprintf("column %s is %s, and in decode.columns it is %s", f.Name, b, a), "files and topic must give the same columns")
		}
	}
	for _, f := range old.Fields {
		if !slices.ContainsFunc(live.Fields, func(o Field) bool { return o.Name == f.Name }) {
			c.Fail(field, "", "has column "+f.Name+", which decode.columns has not", "files and topic must give the same columns")
		}
	}
	for i := range s.Decode.Columns {
		a := &s.Decode.Columns[i]
		j := slices.IndexFunc(of.Decode.Columns, func(b Column) bool { return a.Name == b.Name })
		if j < 0 {
			continue
		}
		if b := &of.Decode.Columns[j]; (a.Hash == nil) != (b.Hash == nil) || a.Hash != nil && *a.Hash != *b.Hash {
			c.Fail(field, "", "column "+a.Name+" has another hash than in decode.columns: the same value would get another number", "write the same buckets and salt")
		}
	}
}

// text is a column's type for people.
func (f Field) text() string {
	var b strings.Builder
	b.WriteString(f.DType.String())
	if len(f.Shape) > 0 {
		fmt.Fprintf(&b, " of shape %v", f.Shape)
	}
	if f.Ragged {
		b.WriteString(", several per row")
	}
	if f.Mask {
		b.WriteString(", with a mask")
	}
	return b.String()
}

// MarshalJSON writes the source's part under the name of its kind, as a Spec does.
func (b Backfill) MarshalJSON() ([]byte, error) {
	members := map[string]any{"decode": b.Decode}
	if b.Source != nil {
		members[b.Source.Kind().Name] = b.Source
	}
	return marshal(members)
}

// UnmarshalJSON reads what MarshalJSON wrote. Fields that it does not know are errors.
func (b *Backfill) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for name, part := range members {
		if name == "decode" {
			if err := strictly(part, &b.Decode); err != nil {
				return err
			}
			continue
		}
		k, ok := kindNamed(name)
		if !ok || !k.Backfills || b.Source != nil {
			return fmt.Errorf("backfill: %q is no source that this version reads a history from", name)
		}
		b.Source = k.New()
		if err := strictly(part, b.Source); err != nil {
			return fmt.Errorf("backfill: %s: %w", name, err)
		}
	}
	return nil
}
