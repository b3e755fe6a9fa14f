package dataset

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headrace/headrace/sources"
)

// NoQuote is DecodeSpec.Quote of a format without quoting.
const NoQuote = "none"

const (
	maxColumns = 4096
	MaxRecord  = Size(1 << 30) // what max_record may be: a frame's limit (docs/PROTOCOL.md)
	maxName    = 128
	leastEvery = Duration(100 * time.Millisecond)
)

var datasetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Check collects what is wrong with a complete spec. lines may be nil.
type Check struct {
	file  string
	lines map[string]int
	errs  SpecErrors
	under string // the block whose fields are checked, "backfill."

	source    sources.Kind
	maxRecord Size   // of the source
	other     string // the name of a second source
}

func (s *Spec) validate(file string, lines map[string]int, other string) SpecErrors {
	c := &Check{file: file, lines: lines, other: other}
	c.spec(s)
	return c.errs
}

// Fail names a field ("kafka.topic"); its line is its own, or that of the closest field around it.
func (c *Check) Fail(field, value, reason, allowed string) {
	field = c.under + field
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

// Among says whether a value is one of those that are allowed, and what they are if not.
func (c *Check) Among(field, value string, allowed ...string) bool {
	if slices.Contains(allowed, value) {
		return true
	}
	hint := OneOf(allowed...)
	if near := Nearest(value, allowed); near != "" {
		hint = "did you mean " + near + "? " + hint
	}
	reason := "is not known here"
	if value == "" {
		reason = "must be given"
	}
	c.Fail(field, value, reason, hint)
	return false
}

func (c *Check) spec(s *Spec) {
	if s.Name == "" {
		c.Fail("name", "", "must be given", "as in name: clicks")
	} else if !datasetName.MatchString(s.Name) {
		c.Fail("name", s.Name, "is not a name", "use letters, digits, '.', '_' and '-', a letter or digit first, 128 at most")
	}
	switch {
	case s.Source == nil:
		c.noSource()
	case c.other != "":
		c.Fail(c.other, "", "does not go with "+s.Source.Kind().Name+": a dataset has one source", "make two datasets")
	default:
		s.Source.Check(c, s)
		c.reach(s)
		c.source = s.Source.Kind()
		c.maxRecord = s.Source.Traits().MaxRecord
		if s.Live() {
			c.live(s)
		}
	}
	if s.Passes < 1 {
		c.Fail("passes", fmt.Sprint(s.Passes), "must be 1 or more", "")
	}
	c.Among("order", s.Order, "any", "strict")
	c.Among("on_loss", s.OnLoss, "stop", "continue")
	if s.Resume != "" {
		c.Among("resume", s.Resume, "bound", "acked", "start")
	}
	if s.Guard.Warn < 0 {
		c.Fail("guard.warn", s.Guard.Warn.String(), "is negative", "")
	}
	if s.Guard.Every < leastEvery {
		c.Fail("guard.every", s.Guard.Every.String(), "asks the broker too often", "at least "+leastEvery.String())
	}
	if s.Shuffle != nil {
		if s.Order == "strict" {
			c.Fail("shuffle", "", "does not go with order: strict", "remove one of them")
		}
		if s.Shuffle.Block < 1 {
			c.Fail("shuffle.block", s.Shuffle.Block.String(), "must be 1 or more", "")
		}
	}
	if s.BitExact != nil {
		c.bitExact(s)
	}
	c.lease(&s.Lease)
	c.decode(&s.Decode)
	c.bad(s)
	c.backfill(s)
	c.catchUp(s)
}

func (c *Check) noSource() {
	examples := make([]string, len(kinds))
	for i, k := range kinds {
		examples[i] = k.Example
	}
	first := "source"
	if len(kinds) > 0 {
		first = kinds[0].Name
	}
	c.Fail(first, "", "must be given: it says what to read", "as in "+strings.Join(examples, ", or "))
}

// live checks what live input does not go with.
func (c *Check) live(s *Spec) {
	anEnd := toEnd(c.source)
	if s.Backfill != nil { // which needs live input
		anEnd = ""
	}
	if s.Passes > 1 {
		c.Fail("passes", fmt.Sprint(s.Passes), "does not go with "+endless(c.source)+": such input is read once, as it comes", either("remove passes", anEnd))
	}
	if s.Shuffle != nil {
		c.Fail("shuffle", "", "does not go with "+endless(c.source)+": a permutation needs all of the input before it is read", either("remove shuffle", anEnd))
	}
}

func (c *Check) bitExact(s *Spec) {
	x := s.BitExact
	if x.VirtualRanks < 1 || x.VirtualRanks > sources.MaxVirtualRanks {
		c.Fail("bit_exact.virtual_ranks", fmt.Sprint(x.VirtualRanks), fmt.Sprintf("must be 1 to %d", sources.MaxVirtualRanks), "as many as the most workers that you will ever have, or a multiple of it")
	}
	progress := "" // the field that asks for it
	if c.source.Name != "" {
		if t := s.Source.Traits(); t.Progress != "" {
			progress = t.ProgressField
		}
	}
	switch {
	case c.source.Inexact != "":
		c.Fail("bit_exact", "", "does not go with "+c.source.Name+": "+c.source.Inexact, either("remove bit_exact", hintOfExact()))
	case s.Live():
		c.Fail("bit_exact", "", "does not go with "+endless(c.source)+": only input that has an end is dealt out in blocks", either("remove bit_exact", toEnd(c.source)))
	case progress != "":
		c.Fail("bit_exact", "", "does not go with "+c.source.Name+"."+progress+": the progress in dealt out blocks is no offset of a partition", "remove one of them")
	case s.Order == "strict":
		c.Fail("bit_exact", "", "does not go with order: strict: bit_exact reads each virtual rank in order already", "remove one of them")
	case s.OnLoss == "continue":
		c.Fail("bit_exact", "", "does not go with on_loss: continue: without lost records the batches would differ", "remove one of them")
	case x.Block < 1:
		c.Fail("bit_exact.block", x.Block.String(), "must be 1 or more", "")
	case s.Shuffle != nil && x.Block != s.Shuffle.Block:
		c.Fail("bit_exact.block", x.Block.String(), "is not shuffle.block, "+s.Shuffle.Block.String(), "remove it: shuffle says how large blocks are")
	}
}

// hintOfExact names the kinds that bit_exact goes with.
func hintOfExact() string {
	names := kindNames(" or ", func(k Kind) bool { return k.Inexact == "" })
	if names == "" {
		return ""
	}
	return "read from " + names
}

func (c *Check) lease(l *LeaseSpec) {
	if l.Target <= 0 {
		c.Fail("lease.target", l.Target.String(), "must be longer than nothing", "")
	}
	if l.Stall <= 0 {
		c.Fail("lease.stall", l.Stall.String(), "must be longer than nothing", "")
	}
	if l.Min < 1 {
		c.Fail("lease.min", l.Min.String(), "must be 1 or more", "")
	}
	if l.Min > l.Max {
		c.Fail("lease.min", l.Min.String(), "is larger than lease.max, "+l.Max.String(), "")
	} else if l.Initial < l.Min || l.Initial > l.Max {
		c.Fail("lease.initial", l.Initial.String(), fmt.Sprintf("is not between lease.min, %s, and lease.max, %s", l.Min, l.Max), "")
	}
}

func (c *Check) decode(d *DecodeSpec) {
	if !c.Among("decode.format", d.Format, "csv", "tsv", "json", "lines", "raw", "binary", "parquet", "tfrecord", "avro", "protobuf") {
		return
	}
	if d.Columnar() && c.source.Rows.Max == 0 {
		c.Fail("decode.format", d.Format, "is for files, and "+c.source.Name+" are not", "")
		return
	}
	if d.Header && c.source.Keyed {
		c.Fail("decode.header", "", "is for files: a broker's records have no first line", "name the fields in decode.fields")
	}
	c.Among("decode.on_error", d.OnError, "fail", "default", OnErrorSkip)
	if d.Format == "csv" || d.Format == "tsv" {
		c.separators(d)
	} else {
		c.noSeparators(d)
	}
	c.writers(d)
	c.columns(d)
	c.recordSize(d)
	if d.EventTime != "" {
		c.eventTime(d)
	}
}

func (c *Check) separators(d *DecodeSpec) {
	c.oneByte("decode.delimiter", d.Delimiter)
	if d.Quote != NoQuote {
		c.oneByte("decode.quote", d.Quote)
		if d.Quote == d.Delimiter {
			c.Fail("decode.quote", d.Quote, "is the delimiter too", "")
		}
	}
	if d.Header && len(d.Fields) > 0 {
		c.Fail("decode.fields", "", "does not go with header: true, where each file's first line names its fields", "remove one of them")
	}
	if len(d.Fields) > maxFields {
		c.Fail("decode.fields", "", fmt.Sprintf("has more than %d names", maxFields), "")
	}
	seen := make(map[string]int, len(d.Fields))
	for i, name := range d.Fields {
		at := fmt.Sprintf("decode.fields[%d]", i)
		if first, twice := seen[name]; twice {
			c.Fail(at, name, fmt.Sprintf("is the name of field %d too", first), "")
		} else if name == "" {
			c.Fail(at, "", "is empty", "every field needs a name")
		}
		seen[name] = i
	}
}

// oneByte: separators are found by scanning for one byte.
func (c *Check) oneByte(field, s string) bool {
	switch {
	case len(s) != 1 || s[0] >= utf8.RuneSelf:
		c.Fail(field, s, "must be one ASCII character", "")
	case s == "\n" || s == "\r" || s == "\x00":
		c.Fail(field, s, "cannot be a line end or a zero byte", "")
	default:
		return true
	}
	return false
}

func (c *Check) noSeparators(d *DecodeSpec) {
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
			c.Fail(f.field, f.value, "is only for csv and tsv, and decode.format is "+d.Format, "remove it")
		}
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
