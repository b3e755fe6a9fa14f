package cut

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headrace/headrace/sources"
)

const (
	// Version of the JSON form. It grows when an older reader would misunderstand a
	// newer cut; new optional fields do not change it.
	Version = 1
	// MaxBytes of a cut's JSON.
	MaxBytes = 256 << 20
)

// EncodeJSON is the cut as manifests and messages carry it. It refuses what
// ParseJSON would refuse.
func (c *Cut) EncodeJSON() ([]byte, error) {
	c.Version = Version
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c.MarshalJSON()
}

// MarshalJSON writes the JSON form. Ranges that span segments become one piece in
// each of them.
func (c Cut) MarshalJSON() ([]byte, error) {
	type plain Cut // without this method
	out := c
	out.Datasets = make([]Dataset, len(c.Datasets))
	for i := range c.Datasets {
		d := c.Datasets[i]
		d.Partitions = make([]Partition, len(d.Partitions))
		for j := range d.Partitions {
			d.Partitions[j] = c.Datasets[i].Partitions[j].inPieces(d.Shuffle != nil)
		}
		out.Datasets[i] = d
	}
	return json.Marshal((*plain)(&out))
}

// inPieces returns a copy of p whose ranges lie in one segment each. A missing list of
// segments or passes becomes an empty one, so that JSON has [] and not null.
func (p *Partition) inPieces(shuffled bool) Partition {
	q := *p
	if q.Segments == nil {
		q.Segments = []sources.Segment{}
	}
	q.Passes = make([]Pass, len(p.Passes))
	for i := range p.Passes {
		q.Passes[i] = p.Passes[i]
		if !shuffled {
			q.Passes[i].Ranges = p.Passes[i].Ranges.inPieces(p.Segments)
		}
	}
	return q
}

// ParseJSON reads the JSON form of a cut, from a manifest or a message, and validates
// it. Errors: *Error.
func ParseJSON(b []byte) (*Cut, error) {
	switch {
	case len(b) > MaxBytes:
		return nil, damaged("%d bytes, at most %d", len(b), MaxBytes)
	case len(bytes.TrimSpace(b)) == 0:
		return nil, damaged("it is empty")
	}
	c := &Cut{Rank: Group}
	err := json.Unmarshal(b, c)
	if err != nil || c.Version != Version {
		if err := CheckVersion(b); err != nil { // a newer one may be unlike ours
			return nil, err
		}
		return nil, WrongJSON(err)
	}
	if e := c.Wrong(); e != nil {
		return nil, e
	}
	return c, nil
}

// CheckVersion returns an error if this reader does not know the version of a cut's
// JSON. It reads no other field: a newer cut may have other ones.
func CheckVersion(b []byte) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return WrongJSON(err)
	}
	switch {
	case head.Version > Version:
		return &Error{ErrNewer, "version", fmt.Sprintf("the cut has version %d, this Headrace knows up to %d: use the Headrace that wrote it, or a newer one", head.Version, Version)}
	case head.Version < 1:
		return invalid("version", "the cut has version %d, must be 1 or more", head.Version)
	}
	return nil
}

// WrongJSON turns an error of encoding/json into an *Error that names the field.
func WrongJSON(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid(e.Field, "a %s does not fit there", e.Value)
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return damaged("not JSON: %v", err)
	}
	return invalid("", "%v", err)
}
