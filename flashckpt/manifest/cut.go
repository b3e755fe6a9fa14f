package manifest

import (
	"bytes"
	"fmt"
	"strconv"
)

// Cut is the records that are in the model at a step. It is self-contained: with
// the segment tables it restores on a master that knows nothing.
//
// Positions are in order space (docs/ARCHITECTURE.md): without shuffle the
// source's own segments and offsets; with shuffle the one order segment 0.
type Cut struct {
	Version    int     `json:"version"`
	ID         CutID   `json:"id"`
	Job        string  `json:"job"`
	Model      string  `json:"model"`
	Epoch      uint32  `json:"epoch"`
	Generation uint32  `json:"generation"`
	Rank       *uint32 `json:"rank,omitempty"` // private: whose cut it is
	WorldSize  uint32  `json:"world_size"`
	Step       int64   `json:"step"`
	Exact      bool    `json:"exact"` // false: the model may hold more (shared)
	// Order grows with every cut that the job's master freezes, whatever the clocks
	// say; 0: an older version wrote it.
	Order    uint64    `json:"order,omitempty"`
	Datasets []Dataset `json:"datasets"`
}

// Dataset is what is settled of one dataset.
type Dataset struct {
	Name       string      `json:"name"`
	Unit       string      `json:"unit"` // bytes | records
	Shuffle    *Shuffle    `json:"shuffle,omitempty"`
	Partitions []Partition `json:"partitions"`
}

// Shuffle is the permutation of a dataset's blocks (docs/PROTOCOL.md).
type Shuffle struct {
	Seed  uint64 `json:"seed"`
	Block int64  `json:"block"` // units
	// bit_exact: block i of the order is that of virtual rank i mod VirtualRanks,
	// and each partition is one virtual rank, "files:clicks#3/8".
	VirtualRanks uint32 `json:"virtual_ranks,omitempty"`
	InOrder      bool   `json:"in_order,omitempty"` // the order is that of the input
}

// Partition is what is settled of one partition: passes [0, Done) wholly, and
// what Passes say of those after them. A pass that is not there has nothing
// settled.
type Partition struct {
	Identity  string `json:"identity"`
	Name      string `json:"name,omitempty"` // what people call it: clicks/3
	Number    uint32 `json:"number"`         // at the master that froze the cut
	Estimated bool   `json:"estimated,omitempty"`
	Complete  bool   `json:"complete"` // the table has all segments; none will follow
	Done      uint32 `json:"done"`
	DoneUnits Units  `json:"done_units"`
	// DoneRecords are those of the passes that are done; see DoneCounted.
	DoneRecords *Records   `json:"done_records,omitempty"`
	Segments    []Segment  `json:"segments"` // up to the highest position named here
	Passes      []Pass     `json:"passes"`
	Excluded    []Excluded `json:"excluded,omitempty"` // of all passes
}

// Label is what people call it.
func (p *Partition) Label() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Identity
}

// Segment is a piece of a partition with its own run of offsets.
type Segment struct {
	ID      int64  `json:"id"`
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
	Sealed  bool   `json:"sealed"`
	Name    string `json:"name"`
	Locator []byte `json:"locator,omitempty"` // base64: opens it on any node
}

// Pass is what is settled of one reading of a partition: everything below Low,
// and the ranges above it.
type Pass struct {
	Pass  uint32 `json:"pass"`
	Low   Place  `json:"low"`
	Units Units  `json:"units"` // all of it, below and above
	// Records are those in Units.Acked; see Counted.
	Records *Records `json:"records,omitempty"`
	Ranges  Ranges   `json:"ranges"`
}

// Units by kind.
type Units struct {
	Acked    int64 `json:"acked"`
	Excluded int64 `json:"excluded"`
	Dropped  int64 `json:"dropped"`
}

// Records counts what is in acked units. A unit says how much was read; only the
// reader knows how many records that was.
type Records struct {
	Rows   int64 `json:"rows"`             // with Untold: at least so many
	Untold int64 `json:"untold,omitempty"` // units of whose records nobody told
	// Event times of the oldest and the newest, ms since 1970; 0 and 0: none has one.
	Oldest int64 `json:"oldest,omitempty"`
	Newest int64 `json:"newest,omitempty"`
}

// Ranges above the low mark, by kind; each list is sorted, and no two ranges of
// any list overlap.
type Ranges struct {
	Acked    []Range `json:"acked,omitempty"`
	Excluded []Range `json:"excluded,omitempty"`
	Dropped  []Range `json:"dropped,omitempty"`
}

// Place is [segment, offset].
type Place [2]int64

// Range is [segment, start, end): the records that begin in it.
type Range [3]int64

// Excluded is a range of records that no model has and none will get.
type Excluded struct {
	Pass   uint32 `json:"pass"`
	Range  Range  `json:"range"`
	Units  int64  `json:"units"`
	Kind   string `json:"kind"` // lost, quarantined, dead_letter, ...
	Reason string `json:"reason"`
	When   int64  `json:"when"` // ms since 1970
}

func (p Place) Segment() int64 { return p[0] }
func (p Place) Offset() int64  { return p[1] }
func (r Range) Segment() int64 { return r[0] }
func (r Range) Start() int64   { return r[1] }
func (r Range) End() int64     { return r[2] }

// Units of all passes of a dataset.
func (d *Dataset) Units() (u Units) {
	for i := range d.Partitions {
		u.add(d.Partitions[i].Units())
	}
	return u
}

// Units of all passes of a partition.
func (p *Partition) Units() Units {
	u := p.DoneUnits
	for i := range p.Passes {
		u.add(p.Passes[i].Units)
	}
	return u
}

// Counted are the records of a pass. A cut of a version that did not count them has
// all of its units untold.
func (p *Pass) Counted() Records {
	if p.Records == nil {
		return Records{Untold: p.Units.Acked}
	}
	return *p.Records
}

// DoneCounted are the records of the passes that are done.
func (p *Partition) DoneCounted() Records {
	if p.DoneRecords == nil {
		return Records{Untold: p.DoneUnits.Acked}
	}
	return *p.DoneRecords
}

// Records of all passes of a partition.
func (p *Partition) Records() Records {
	r := p.DoneCounted()
	for i := range p.Passes {
		r.Add(p.Passes[i].Counted())
	}
	return r
}

// Records of all passes of a dataset.
func (d *Dataset) Records() (r Records) {
	for i := range d.Partitions {
		r.Add(d.Partitions[i].Records())
	}
	return r
}

// Add sums up.
func (r *Records) Add(o Records) {
	r.Rows += o.Rows
	r.Untold += o.Untold
	switch {
	case o.Oldest == 0 && o.Newest == 0:
	case r.Oldest == 0 && r.Newest == 0:
		r.Oldest, r.Newest = o.Oldest, o.Newest
	default:
		r.Oldest, r.Newest = min(r.Oldest, o.Oldest), max(r.Newest, o.Newest)
	}
}

func (u *Units) add(o Units) {
	u.Acked += o.Acked
	u.Excluded += o.Excluded
	u.Dropped += o.Dropped
}

func (p *Place) UnmarshalJSON(b []byte) error { return integers(b, p[:]) }
func (r *Range) UnmarshalJSON(b []byte) error { return integers(b, r[:]) }

// integers reads exactly len(into) of them; encoding/json would fill a shorter
// list with zeros and cut a longer one. b is JSON; it may be one of a million.
func integers(b []byte, into []int64) error {
	rest, ok := bytes.CutPrefix(b, []byte("["))
	for i := range into {
		end := bytes.IndexAny(rest, ",]")
		if !ok || end < 0 || (rest[end] == ']') != (i == len(into)-1) {
			return fmt.Errorf("%.100s: must be %d integers", b, len(into))
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(rest[:end])), 10, 64)
		if err != nil {
			return fmt.Errorf("%.100s: must be %d integers", b, len(into))
		}
		into[i], rest = n, rest[end+1:]
	}
	return nil
}
