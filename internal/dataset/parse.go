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
		return nil, SpecErrors{{File: filename, Reason: "holds no dataset", Allowed: "a spec has at least name, files or kafka, and decode"}}
	}
	return specs, nil
}

func parseDocument(n *yaml.Node, filename string) (*Spec, int, SpecErrors) {
	r := &reader{file: filename, lines: map[string]int{}}
	spec := defaultSpec()
	r.spec(deref(n), spec)
	// A field that could not be read has its default or nothing now; judging
	// that would only repeat the complaint.
	if len(r.errs) == 0 {
		r.lines[""] = n.Line
		spec.fill()
		r.errs = spec.validate(r.file, r.lines)
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

func (r *reader) spec(n *yaml.Node, s *Spec) {
	r.mapping(n, "", []field{
		{"name", r.text(&s.Name)},
		{"files", func(n *yaml.Node, path string) { r.files(n, path, s) }},
		{"kafka", func(n *yaml.Node, path string) { r.kafka(n, path, s) }},
		{"decode", func(n *yaml.Node, path string) { r.decode(n, path, &s.Decode) }},
		{"passes", parsed(r, &s.Passes, parseCount)},
		{"order", r.text(&s.Order)},
		{"bit_exact", func(n *yaml.Node, path string) { r.bitExact(n, path, s) }},
		{"shuffle", func(n *yaml.Node, path string) { r.shuffle(n, path, s) }},
		{"lease", func(n *yaml.Node, path string) { r.lease(n, path, &s.Lease) }},
		{"on_loss", r.text(&s.OnLoss)},
		{"resume", r.text(&s.Resume)},
		{"guard", func(n *yaml.Node, path string) {
			r.mapping(n, path, []field{{"warn", parsed(r, &s.Guard.Warn, ParseDuration)}, {"every", parsed(r, &s.Guard.Every, ParseDuration)}})
		}},
	})
}

func (r *reader) files(n *yaml.Node, path string, s *Spec) {
	f := defaultFiles()
	s.Files = &f
	r.mapping(n, path, []field{
		{"root", r.text(&f.Root)},
		{"paths", r.texts(&f.Paths)},
		{"verify", r.text(&f.Verify)},
		{"max_record", parsed(r, &f.MaxRecord, ParseSize)},
	})
}

func (r *reader) decode(n *yaml.Node, path string, d *DecodeSpec) {
	if n.Kind == yaml.ScalarNode && !isNull(n) { // decode: raw
		r.text(&d.Format)(n, path)
		return
	}
	r.mapping(n, path, []field{
		{"format", r.text(&d.Format)},
		{"header", parsed(r, &d.Header, parseBool)},
		{"fields", r.texts(&d.Fields)},
		{"delimiter", r.text(&d.Delimiter)},
		{"quote", r.text(&d.Quote)},
		{"record_size", parsed(r, &d.RecordSize, ParseSize)},
		{"columns", func(n *yaml.Node, path string) { r.columns(n, path, d) }},
		{"event_time", r.text(&d.EventTime)},
		{"on_error", r.text(&d.OnError)},
	})
}

func (r *reader) columns(n *yaml.Node, path string, d *DecodeSpec) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, path, "is "+kindName(n)+", and must be a list of columns", "")
		return
	}
	d.Columns = make([]Column, len(n.Content))
	for i, c := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		c, col := deref(c), &d.Columns[i]
		r.lines[at] = c.Line
		r.mapping(c, at, []field{
			{"name", r.text(&col.Name)},
			{"path", r.text(&col.Path)},
			{"paths", r.texts(&col.Paths)},
			{"offset", func(n *yaml.Node, path string) {
				col.Offset = new(int)
				parsed(r, col.Offset, parseCount)(n, path)
			}},
			{"shape", r.counts(&col.Shape)},
			{"dtype", r.text(&col.DType)},
			{"default", r.optionalText(&col.Default)},
			{"missing", r.text(&col.Missing)},
			{"hash", func(n *yaml.Node, path string) { r.hash(n, path, col) }},
			{"split", r.text(&col.Split)},
			{"weights", r.text(&col.Weights)},
			{"max", parsed(r, &col.Max, parseCount)},
		})
	}
}

func (r *reader) hash(n *yaml.Node, path string, c *Column) {
	c.Hash = &Hash{}
	r.mapping(n, path, []field{
		{"buckets", parsed(r, &c.Hash.Buckets, parseInt64)},
		{"salt", r.text(&c.Hash.Salt)},
	})
}

func (r *reader) shuffle(n *yaml.Node, path string, s *Spec) {
	s.Shuffle = &Shuffle{Block: unset}
	r.mapping(n, path, []field{
		{"seed", parsed(r, &s.Shuffle.Seed, parseUint64)},
		{"block", parsed(r, &s.Shuffle.Block, ParseSize)},
	})
}

func (r *reader) bitExact(n *yaml.Node, path string, s *Spec) {
	s.BitExact = &BitExact{Block: unset}
	r.mapping(n, path, []field{
		{"virtual_ranks", parsed(r, &s.BitExact.VirtualRanks, parseCount)},
		{"block", parsed(r, &s.BitExact.Block, ParseSize)},
	})
}

func (r *reader) lease(n *yaml.Node, path string, l *LeaseSpec) {
	r.mapping(n, path, []field{
		{"target", parsed(r, &l.Target, ParseDuration)},
		{"initial", parsed(r, &l.Initial, ParseSize)},
		{"min", parsed(r, &l.Min, ParseSize)},
		{"max", parsed(r, &l.Max, ParseSize)},
		{"stall", parsed(r, &l.Stall, ParseDuration)},
	})
}

func parseCount(s string) (int, error) {
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

func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("is neither true nor false")
}
