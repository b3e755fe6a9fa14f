package dataset

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// NoQuote is DecodeSpec.Quote of a format without quoting.
const NoQuote = "none"

const (
	maxColumns = 4096
	maxRecord  = Size(1 << 30) // a frame's limit (docs/PROTOCOL.md)
	maxName    = 128
	leastEvery = Duration(100 * time.Millisecond)
)

var datasetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// check collects what is wrong with a complete spec. lines may be nil.
type check struct {
	file  string
	lines map[string]int
	errs  SpecErrors

	brokers   bool // records have keys, headers and times
	maxRecord Size // of the source
}

func (s *Spec) validate(file string, lines map[string]int) SpecErrors {
	c := &check{file: file, lines: lines}
	c.spec(s)
	return c.errs
}

// fail names a field; its line is its own, or that of the closest field around it.
func (c *check) fail(field, value, reason, allowed string) {
	line, at := 0, field
	for line == 0 {
		line = c.lines[at]
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	if line == 0 {
		line = c.lines[""]
	}
	c.errs = append(c.errs, &SpecError{File: c.file, Line: line, Field: field, Value: value, Reason: reason, Allowed: allowed})
}

func (c *check) among(field, value string, allowed ...string) bool {
	if slices.Contains(allowed, value) {
		return true
	}
	hint := oneOf(allowed...)
	if near := Nearest(value, allowed); near != "" {
		hint = "did you mean " + near + "? " + hint
	}
	reason := "is not known here"
	if value == "" {
		reason = "must be given"
	}
	c.fail(field, value, reason, hint)
	return false
}

func (c *check) spec(s *Spec) {
	if s.Name == "" {
		c.fail("name", "", "must be given", "as in name: clicks")
	} else if !datasetName.MatchString(s.Name) {
		c.fail("name", s.Name, "is not a name", "use letters, digits, '.', '_' and '-', a letter or digit first, 128 at most")
	}
	switch {
	case s.Files == nil && s.Kafka == nil:
		c.fail("files", "", "must be given: it says what to read", "as in files: {root: /data/clicks}, or kafka: {brokers: [kafka-1:9092], topic: clicks}")
	case s.Files != nil && s.Kafka != nil:
		c.fail("kafka", "", "does not go with files: a dataset has one source", "make two datasets")
	case s.Files != nil:
		c.filesSpec(s.Files)
		c.maxRecord = s.Files.MaxRecord
	default:
		c.kafkaSpec(s)
		c.maxRecord = s.Kafka.MaxRecord
	}
	if s.Passes < 1 {
		c.fail("passes", fmt.Sprint(s.Passes), "must be 1 or more", "")
	}
	c.among("order", s.Order, "any", "strict")
	c.among("on_loss", s.OnLoss, "stop", "continue")
	if s.Resume != "" {
		c.among("resume", s.Resume, "bound", "acked", "start")
	}
	if s.Guard.Warn < 0 {
		c.fail("guard.warn", s.Guard.Warn.String(), "is negative", "")
	}
	if s.Guard.Every < leastEvery {
		c.fail("guard.every", s.Guard.Every.String(), "asks the broker too often", "at least "+leastEvery.String())
	}
	if s.Shuffle != nil {
		if s.Order == "strict" {
			c.fail("shuffle", "", "does not go with order: strict", "remove one of them")
		}
		if s.Shuffle.Block < 1 {
			c.fail("shuffle.block", s.Shuffle.Block.String(), "must be 1 or more", "")
		}
	}
	if s.BitExact != nil {
		c.bitExact(s)
	}
	c.lease(&s.Lease)
	c.brokers = s.Kafka != nil
	c.decode(&s.Decode)
}

// maxVirtualRanks: each of them has a table of all segments.
const maxVirtualRanks = 1024

func (c *check) bitExact(s *Spec) {
	x := s.BitExact
	if x.VirtualRanks < 1 || x.VirtualRanks > maxVirtualRanks {
		c.fail("bit_exact.virtual_ranks", fmt.Sprint(x.VirtualRanks), fmt.Sprintf("must be 1 to %d", maxVirtualRanks), "as many as the most workers that you will ever have, or a multiple of it")
	}
	switch {
	case s.Live():
		c.fail("bit_exact", "", "does not go with kafka.end: never: what has no end is not dealt out in blocks", "name an end, as in end: latest")
	case s.Kafka != nil && s.Kafka.Group != "":
		c.fail("bit_exact", "", "does not go with kafka.group: what is done of dealt out blocks is no offset of a partition", "remove one of them")
	case s.Order == "strict":
		c.fail("bit_exact", "", "does not go with order: strict: each virtual rank is read in order as it is", "remove one of them")
	case s.OnLoss == "continue":
		c.fail("bit_exact", "", "does not go with on_loss: continue: batches without lost records are others", "remove one of them")
	case x.Block < 1:
		c.fail("bit_exact.block", x.Block.String(), "must be 1 or more", "")
	case s.Shuffle != nil && x.Block != s.Shuffle.Block:
		c.fail("bit_exact.block", x.Block.String(), "is not shuffle.block, "+s.Shuffle.Block.String(), "remove it: shuffle says how large blocks are")
	}
}

func (c *check) filesSpec(f *FilesSpec) {
	switch {
	case f.Root == "":
		c.fail("files.root", "", "must be given: the folder that holds the files", "")
	case !path.IsAbs(f.Root):
		c.fail("files.root", f.Root, "is relative", "write an absolute path (only `headrace` commands that read a spec's file take it as relative to that file)")
	case strings.ContainsRune(f.Root, 0):
		c.fail("files.root", f.Root, "holds a zero byte", "")
	}
	for i, p := range f.Paths {
		at := fmt.Sprintf("files.paths[%d]", i)
		switch {
		case p == "":
			c.fail(at, "", "is empty", `use "." for the whole root`)
		case path.IsAbs(p):
			c.fail(at, p, "is absolute", "paths lie under files.root and are relative to it")
		case slices.Contains(strings.Split(p, "/"), ".."):
			c.fail(at, p, "leaves files.root", "paths lie under files.root and are relative to it")
		case strings.ContainsRune(p, 0):
			c.fail(at, p, "holds a zero byte", "")
		default:
			if _, err := path.Match(p, ""); err != nil {
				c.fail(at, p, "is not a glob pattern", "a [ needs its ]; write \\[ for the character itself")
			}
		}
	}
	c.among("files.verify", f.Verify, "fast", "full")
	if f.MaxRecord < 1 || f.MaxRecord > maxRecord {
		c.fail("files.max_record", f.MaxRecord.String(), "must be from 1 to "+maxRecord.String(), "")
	}
}

func (c *check) lease(l *LeaseSpec) {
	if l.Target <= 0 {
		c.fail("lease.target", l.Target.String(), "must be longer than nothing", "")
	}
	if l.Stall <= 0 {
		c.fail("lease.stall", l.Stall.String(), "must be longer than nothing", "")
	}
	if l.Min < 1 {
		c.fail("lease.min", l.Min.String(), "must be 1 or more", "")
	}
	if l.Min > l.Max {
		c.fail("lease.min", l.Min.String(), "is larger than lease.max, "+l.Max.String(), "")
	} else if l.Initial < l.Min || l.Initial > l.Max {
		c.fail("lease.initial", l.Initial.String(), fmt.Sprintf("is not between lease.min, %s, and lease.max, %s", l.Min, l.Max), "")
	}
}

func (c *check) decode(d *DecodeSpec) {
	if !c.among("decode.format", d.Format, "csv", "tsv", "json", "lines", "raw", "binary") {
		return
	}
	if d.Header && c.brokers {
		c.fail("decode.header", "", "is for files: a broker's records have no first line", "name the fields in decode.fields")
	}
	c.among("decode.on_error", d.OnError, "fail", "default")
	if d.Format == "csv" || d.Format == "tsv" {
		c.separators(d)
	} else {
		c.noSeparators(d)
	}
	c.columns(d)
	c.recordSize(d)
	if d.EventTime != "" {
		c.eventTime(d)
	}
}

func (c *check) separators(d *DecodeSpec) {
	c.oneByte("decode.delimiter", d.Delimiter)
	if d.Quote != NoQuote {
		c.oneByte("decode.quote", d.Quote)
		if d.Quote == d.Delimiter {
			c.fail("decode.quote", d.Quote, "is the delimiter too", "")
		}
	}
	if d.Header && len(d.Fields) > 0 {
		c.fail("decode.fields", "", "does not go with header: true, where each file's first line names its fields", "remove one of them")
	}
	if len(d.Fields) > maxFields {
		c.fail("decode.fields", "", fmt.Sprintf("has more than %d names", maxFields), "")
	}
	seen := make(map[string]int, len(d.Fields))
	for i, name := range d.Fields {
		at := fmt.Sprintf("decode.fields[%d]", i)
		if first, twice := seen[name]; twice {
			c.fail(at, name, fmt.Sprintf("is the name of field %d too", first), "")
		} else if name == "" {
			c.fail(at, "", "is empty", "every field needs a name")
		}
		seen[name] = i
	}
}

// oneByte: separators are found by scanning for one byte.
func (c *check) oneByte(field, s string) bool {
	switch {
	case len(s) != 1 || s[0] >= utf8.RuneSelf:
		c.fail(field, s, "must be one ASCII character", "")
	case s == "\n" || s == "\r" || s == "\x00":
		c.fail(field, s, "can not be a line end or a zero byte", "")
	default:
		return true
	}
	return false
}

func (c *check) noSeparators(d *DecodeSpec) {
	for _, f := range []struct {
		field, value string
		set          bool
	}{
		{"decode.header", "", d.Header},
		{"decode.fields", "", len(d.Fields) > 0},
		{"decode.delimiter", d.Delimiter, d.Delimiter != ""},
		{"decode.quote", d.Quote, d.Quote != ""},
	} {
		if f.set {
			c.fail(f.field, f.value, "is only for csv and tsv, and decode.format is "+d.Format, "remove it")
		}
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
