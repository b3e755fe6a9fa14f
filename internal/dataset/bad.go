package dataset

import (
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// DeadLetter says where bad records go (on_error: skip). One of them is set, or none: then
// they go to files in the master's state folder.
type DeadLetter struct {
	Files string `json:"files,omitempty" yaml:"files"` // absolute folder on the master's machine
	Topic string `json:"topic,omitempty" yaml:"topic"` // at the brokers of the dataset's own source
}

// defaultMaxBad keeps the list of bad records short, because every checkpoint carries it.
const defaultMaxBad = "1000"

// BadLimit is max_bad: a number of records, or a share of them.
type BadLimit struct {
	Records    int64 // 0: no number
	PerMillion int64 // 0: no share
}

// ParseBadLimit reads "1000" or "0.1%".
func ParseBadLimit(text string) (BadLimit, error) {
	bad := errors.New(`is no limit: write a number of records, as in 1000, or a share from 0.0001% to 100%, as in 0.1%`)
	if share, ok := strings.CutSuffix(text, "%"); ok {
		x, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		n := math.Round(x * 1e4)
		if err != nil || !(n >= 1 && n <= 1e6) {
			return BadLimit{}, bad
		}
		return BadLimit{PerMillion: int64(n)}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return BadLimit{}, bad
	}
	return BadLimit{Records: n}, nil
}

// BadLimit is the spec's max_bad.
func (s *Spec) BadLimit() BadLimit {
	limit, err := ParseBadLimit(s.MaxBad)
	if err != nil {
		return BadLimit{} // it is not set: a spec is checked before it is used
	}
	return limit
}

// Skips: a record that cannot be decoded is left out.
func (s *Spec) Skips() bool { return s.Decode.OnError == OnErrorSkip }

// Isolates: a record that ends its trainer twice is left out.
func (s *Spec) Isolates() bool { return s.OnCrash == OnCrashIsolate }

// LeavesOut: some records may be excluded, and become dead letters.
func (s *Spec) LeavesOut() bool { return s.Skips() || s.Isolates() }

// The words for it.
const (
	OnErrorSkip    = "skip"
	OnCrashIsolate = "isolate"
)

func (c *Check) bad(s *Spec) {
	c.Among("on_crash", s.OnCrash, "", OnCrashIsolate)
	if s.Isolates() && s.BitExact != nil {
		c.Fail("on_crash", OnCrashIsolate, "does not go with bit_exact: suspect records come again in batches of one record, which changes the batches", "remove one of them")
	}
	if !s.LeavesOut() {
		if s.MaxBad != "" {
			c.Fail("max_bad", s.MaxBad, "needs decode.on_error: skip or on_crash: isolate, and on_error is "+s.Decode.OnError, "remove it, or set decode.on_error: skip")
		}
		if s.DeadLetter != nil {
			c.Fail("dead_letter", "", "needs decode.on_error: skip or on_crash: isolate, and on_error is "+s.Decode.OnError, "remove it, or set decode.on_error: skip")
		}
		return
	}
	if s.Skips() && s.BitExact != nil {
		c.Fail("decode.on_error", OnErrorSkip, "does not go with bit_exact: batches without bad records are not proven to be the same for any number of workers", "remove one of them")
	}
	if _, err := ParseBadLimit(s.MaxBad); err != nil {
		c.Fail("max_bad", s.MaxBad, err.Error(), "")
	}
	d := s.DeadLetter
	switch {
	case d == nil:
	case d.Files == "" && d.Topic == "":
		c.Fail("dead_letter", "", "names no place", "an absolute folder on the master's machine (files), or a topic's name (topic)")
	case d.Files != "" && d.Topic != "":
		c.Fail("dead_letter.topic", d.Topic, "does not go with dead_letter.files: dead letters go to one place", "remove one of them")
	case d.Files != "" && !filepath.IsAbs(d.Files):
		c.Fail("dead_letter.files", d.Files, "is not an absolute folder", "as in /data/bad")
	case d.Topic != "" && s.Source != nil && !c.source.Posts:
		c.Fail("dead_letter.topic", d.Topic, "does not go with "+c.source.Name+": nothing can be written to a topic there", "use dead_letter.files")
	}
}

// DeadLetterTopic is for a source that Posts: it knows which names its topics may have.
func (c *Check) DeadLetterTopic(s *Spec, isTopic func(name string) bool, hint string) {
	if d := s.DeadLetter; d != nil && d.Topic != "" && !isTopic(d.Topic) {
		c.Fail("dead_letter.topic", d.Topic, "is no name of a topic", hint)
	}
}
