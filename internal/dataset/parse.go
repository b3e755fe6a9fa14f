package dataset

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxText bounds what is parsed at all: a spec is a page of text.
const maxText = 1 << 20

// Parse reads one spec, fills in the defaults and checks it. The error is a
// SpecErrors: everything that is wrong, each with its line. filename only names
// the text in errors; "" leaves it out.
func Parse(text []byte, filename string) (*Spec, error) {
	all, err := ParseAll(text, filename)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, SpecErrors{{File: filename, Reason: fmt.Sprintf("holds %d datasets where one is expected", len(all))}}
	}
	return all[0], nil
}

// ParseAll reads every document of the text, at least one. Names are unique
// within it.
func ParseAll(text []byte, filename string) ([]*Spec, error) {
	if len(text) > maxText {
		return nil, SpecErrors{{File: filename, Reason: fmt.Sprintf("is %d bytes long; a spec has at most %d", len(text), maxText)}}
	}
	var (
		specs []*Spec
		errs  SpecErrors
		names = map[string]int{}
	)
	docs := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, append(errs, syntaxError(err, filename))
		}
		if len(doc.Content) != 1 || isNull(doc.Content[0]) {
			continue // only comments
		}
		spec, line, bad := parseDocument(doc.Content[0], filename)
		errs = append(errs, bad...)
		if first, twice := names[spec.Name]; twice && len(bad) == 0 {
			errs = append(errs, &SpecError{File: filename, Line: line, Field: "name", Value: spec.Name,
				Reason: "is used twice; the first is on line " + strconv.Itoa(first)})
		}
		names[spec.Name] = line
		specs = append(specs, spec)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if len(specs) == 0 {
		return nil, SpecErrors{{File: filename, Reason: "holds no dataset", Allowed: "a spec has at least name, " + kindNames(" or ", anyKind) + ", and decode"}}
	}
	return specs, nil
}

func parseDocument(n *yaml.Node, filename string) (*Spec, int, SpecErrors) {
	r := &Reader{file: filename, lines: map[string]int{}}
	spec := defaultSpec()
	r.spec(deref(n), spec)
	// A field that could not be read has its default or nothing now; judging
	// that would only repeat the complaint.
	if len(r.errs) == 0 {
		r.lines[""] = n.Line
		spec.fill()
		r.errs = spec.validate(r.file, r.lines, r.other)
	}
	slices.SortStableFunc(r.errs, func(a, b *SpecError) int { return cmp.Compare(a.Line, b.Line) })
	return spec, r.lines["name"], r.errs
}

// syntaxError turns "yaml: line 3: ..." into a SpecError.
func syntaxError(err error, filename string) *SpecError {
	e := &SpecError{File: filename, Reason: "is not YAML: " + err.Error()}
	var line int
	if n, _ := fmt.Sscanf(err.Error(), "yaml: line %d:", &line); n == 1 {
		e.Line = line
	}
	return e
}

func (r *Reader) spec(n *yaml.Node, s *Spec) {
	members := []Member{{"name", r.Text(&s.Name)}}
	for _, k := range kinds {
		members = append(members, Member{k.Name, func(n *yaml.Node, path string) { r.part(n, path, k, s) }})
	}
	r.Mapping(n, "", append(members, []Member{
		{"decode", func(n *yaml.Node, path string) { r.decode(n, path, &s.Decode) }},
		{"passes", Parsed(r, &s.Passes, ParseCount)},
		{"order", r.Text(&s.Order)},
		{"bit_exact", func(n *yaml.Node, path string) { r.bitExact(n, path, s) }},
		{"shuffle", func(n *yaml.Node, path string) { r.shuffle(n, path, s) }},
		{"lease", func(n *yaml.Node, path string) { r.lease(n, path, &s.Lease) }},
		{"on_loss", r.Text(&s.OnLoss)},
		{"on_crash", r.Text(&s.OnCrash)},
		{"max_bad", r.Text(&s.MaxBad)},
		{"dead_letter", func(n *yaml.Node, path string) {
			s.DeadLetter = &DeadLetter{}
			r.Mapping(n, path, []Member{{"files", r.Text(&s.DeadLetter.Files)}, {"topic", r.Text(&s.DeadLetter.Topic)}})
		}},
		{"backfill", func(n *yaml.Node, path string) { r.backfill(n, path, s) }},
		{"catch_up", func(n *yaml.Node, path string) { r.catchUp(n, path, &s.CatchUp) }},
		{"resume", r.Text(&s.Resume)},
		{"guard", func(n *yaml.Node, path string) {
			r.Mapping(n, path, []Member{{"warn", Parsed(r, &s.Guard.Warn, ParseDuration)}, {"every", Parsed(r, &s.Guard.Every, ParseDuration)}})
		}},
	}...))
}

// part reads a source's part of a spec. Its members' names are the adapter's.
func (r *Reader) part(n *yaml.Node, path string, k Kind, s *Spec) {
	if s.Source != nil {
		r.other = k.Name
		return
	}
	s.Source = k.New()
	r.Mapping(n, path, s.Source.Members(r))
}

func (r *Reader) decode(n *yaml.Node, path string, d *DecodeSpec) {
	if n.Kind == yaml.ScalarNode && !isNull(n) { // decode: raw
		r.Text(&d.Format)(n, path)
		return
	}
	r.Mapping(n, path, append([]Member{
		{"format", r.Text(&d.Format)},
		{"header", Parsed(r, &d.Header, ParseBool)},
		{"fields", r.Texts(&d.Fields)},
		{"delimiter", r.Text(&d.Delimiter)},
		{"quote", r.Text(&d.Quote)},
		{"record_size", Parsed(r, &d.RecordSize, ParseSize)},
		{"columns", func(n *yaml.Node, path string) { r.columns(n, path, d) }},
		{"event_time", r.Text(&d.EventTime)},
		{"on_error", r.Text(&d.OnError)},
	}, r.writers(d)...))
}

func (r *Reader) columns(n *yaml.Node, path string, d *DecodeSpec) {
	if n.Kind != yaml.SequenceNode {
		r.Fail(n, path, "is "+kindName(n)+", and must be a list of columns", "")
		return
	}
	d.Columns = make([]Column, len(n.Content))
	for i, c := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		c, col := deref(c), &d.Columns[i]
		r.lines[at] = c.Line
		r.Mapping(c, at, []Member{
			{"name", r.Text(&col.Name)},
			{"path", r.Text(&col.Path)},
			{"paths", r.Texts(&col.Paths)},
			{"offset", func(n *yaml.Node, path string) {
				col.Offset = new(int)
				Parsed(r, col.Offset, ParseCount)(n, path)
			}},
			{"shape", r.counts(&col.Shape)},
			{"dtype", r.Text(&col.DType)},
			{"default", r.optionalText(&col.Default)},
			{"missing", r.Text(&col.Missing)},
			{"hash", func(n *yaml.Node, path string) { r.hash(n, path, col) }},
			{"split", r.Text(&col.Split)},
			{"weights", r.Text(&col.Weights)},
			{"max", Parsed(r, &col.Max, ParseCount)},
		})
	}
}

func (r *Reader) hash(n *yaml.Node, path string, c *Column) {
	c.Hash = &Hash{}
	r.Mapping(n, path, []Member{
		{"buckets", Parsed(r, &c.Hash.Buckets, parseInt64)},
		{"salt", r.Text(&c.Hash.Salt)},
	})
}

func (r *Reader) shuffle(n *yaml.Node, path string, s *Spec) {
	s.Shuffle = &Shuffle{Block: unset}
	r.Mapping(n, path, []Member{
		{"seed", Parsed(r, &s.Shuffle.Seed, parseUint64)},
		{"block", Parsed(r, &s.Shuffle.Block, ParseSize)},
	})
}

func (r *Reader) bitExact(n *yaml.Node, path string, s *Spec) {
	s.BitExact = &BitExact{Block: unset}
	r.Mapping(n, path, []Member{
		{"virtual_ranks", Parsed(r, &s.BitExact.VirtualRanks, ParseCount)},
		{"block", Parsed(r, &s.BitExact.Block, ParseSize)},
	})
}

func (r *Reader) lease(n *yaml.Node, path string, l *LeaseSpec) {
	r.Mapping(n, path, []Member{
		{"target", Parsed(r, &l.Target, ParseDuration)},
		{"initial", Parsed(r, &l.Initial, ParseSize)},
		{"min", Parsed(r, &l.Min, ParseSize)},
		{"max", Parsed(r, &l.Max, ParseSize)},
		{"stall", Parsed(r, &l.Stall, ParseDuration)},
	})
}

func ParseCount(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, errors.New("is not a whole number of at most 31 bits")
	}
	return int(n), nil
}

func parseInt64(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("is not a whole number of at most 63 bits")
	}
	return n, nil
}

func parseUint64(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errors.New("is not a whole number from 0 to 2^64-1")
	}
	return n, nil
}

func ParseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("is neither true nor false")
}

// ReadMapping reads another YAML file that is one mapping, as strictly as a spec. The error
// is a SpecErrors.
func ReadMapping(text []byte, filename string, members func(*Reader) []Member) error {
	if len(text) > maxText {
		return SpecErrors{{File: filename, Reason: fmt.Sprintf("is %d bytes long; it has at most %d", len(text), maxText)}}
	}
	var doc yaml.Node
	docs := yaml.NewDecoder(bytes.NewReader(text))
	if err := docs.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return SpecErrors{syntaxError(err, filename)}
	}
	if len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return SpecErrors{{File: filename, Reason: "is empty"}}
	}
	if err := docs.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return SpecErrors{{File: filename, Reason: "has a second document after ---"}}
	}
	r := &Reader{file: filename, lines: map[string]int{}}
	r.Mapping(deref(doc.Content[0]), "", members(r))
	if len(r.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(r.errs, func(a, b *SpecError) int { return cmp.Compare(a.Line, b.Line) })
	return r.errs
}
