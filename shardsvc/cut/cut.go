package cut

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/headrace/headrace/sources"
)

// Group is the Rank of a cut that belongs to all ranks together: the cut of a
// replicated or a shared model.
const Group = -1

// Rank is the rank that the cut belongs to (model private), or Group.
type Rank int64

// IsZero makes the JSON form leave out the rank of Group.
func (r Rank) IsZero() bool { return r == Group }

// ID names a cut. The asker draws it at random. 0 is no cut.
type ID uint64

func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText gives 16 hex digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 16 hex digits.
func (id *ID) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || len(b) != 16 {
		return fmt.Errorf("%.40q: not 16 hex digits", b)
	}
	*id = ID(v)
	return nil
}

// ParseID reads the 16 hex digits of a cut.
func ParseID(s string) (id ID, err error) { return id, id.UnmarshalText([]byte(s)) }

// Cut is the set of records that are in the model at a step (docs/CUTS.md).
type Cut struct {
	Version    int    `json:"version"` // of the JSON form; EncodeJSON sets it
	ID         ID     `json:"id"`
	Job        string `json:"job"`
	Model      string `json:"model"` // shared | replicated | private
	Epoch      uint32 `json:"epoch"`
	Generation uint32 `json:"generation"`
	Rank       Rank   `json:"rank,omitzero"`
	WorldSize  uint32 `json:"world_size"` // ranks of the group when the cut was frozen
	Step       int64  `json:"step"`
	Exact      bool   `json:"exact"` // false: the model may hold more than the cut (shared)
	// Order grows with every cut that the job's master freezes, whatever the clocks
	// say. 0: an older version wrote it.
	Order    uint64    `json:"order,omitempty"`
	Datasets []Dataset `json:"datasets"`
}

// Dataset says what is settled in one dataset.
type Dataset struct {
	Name       string      `json:"name"`
	Unit       string      `json:"unit"`              // bytes | records | entries
	Shuffle    *Shuffle    `json:"shuffle,omitempty"` // nil: not shuffled
	Partitions []Partition `json:"partitions"`
}

// Shuffle is the permutation of a dataset's blocks (docs/PROTOCOL.md). It defines
// order space: a dataset with another one cannot take the cut.
type Shuffle struct {
	Seed  uint64 `json:"seed"`
	Block int64  `json:"block"` // units
	// VirtualRanks of a bit_exact dataset: block i of the order belongs to virtual rank
	// i mod VirtualRanks, and each partition is one virtual rank, "files:clicks#3/8".
	VirtualRanks uint32 `json:"virtual_ranks,omitempty"`
	InOrder      bool   `json:"in_order,omitempty"` // the blocks are not permuted
}

// Partition says what is settled in one partition. Passes [0, Done) are settled
// wholly. Passes says what is settled in later ones; in a pass that it does not list,
// nothing is.
type Partition struct {
	Identity  string `json:"identity"`       // sources.PartitionID
	Name      string `json:"name,omitempty"` // for people: clicks/3; not in the binary form
	Unit      string `json:"unit,omitempty"` // of its offsets; "": the dataset's; not in the binary form
	Number    uint32 `json:"number"`         // at the master that froze the cut
	Estimated bool   `json:"estimated,omitempty"`
	Complete  bool   `json:"complete"` // Segments has all segments there will ever be
	Done      uint32 `json:"done"`
	DoneUnits Units  `json:"done_units"`
	// DoneRecords counts the records of passes [0, Done). nil: nobody counted them, and
	// DoneCounted takes all their units as untold.
	DoneRecords *Tally `json:"done_records,omitempty"`
	// Segments are all segments up to the highest position in the cut, or more. End of an
	// unsealed segment is where it ended when the cut was frozen.
	Segments []sources.Segment `json:"segments"`
	Passes   []Pass            `json:"passes"`
	Excluded []Exclusion       `json:"excluded,omitempty"` // of all passes
	Dropped  []Drop            `json:"dropped,omitempty"`  // of all passes
}

// UnitOf is the unit of a partition's offsets: a dataset with a backfill has two.
func (d *Dataset) UnitOf(p *Partition) string { return cmp.Or(p.Unit, d.Unit) }

// ByUnit splits a dataset into one dataset for each unit in which its partitions count. The
// one with the dataset's own unit comes first.
func (d *Dataset) ByUnit() []Dataset {
	all := []Dataset{*d}
	all[0].Partitions = nil
	for _, p := range d.Partitions {
		u := d.UnitOf(&p)
		i := slices.IndexFunc(all, func(x Dataset) bool { return x.Unit == u })
		if i < 0 {
			i = len(all)
			all = append(all, *d)
			all[i].Unit, all[i].Partitions = u, nil
		}
		all[i].Partitions = append(all[i].Partitions, p)
	}
	return all
}

// Label is the partition's name for people, or else its identity.
func (p *Partition) Label() string { return cmp.Or(p.Name, p.Identity) }

// Later says whether the cut knows of a pass after the first. A pass after the
// first begins only when all segments are known.
func (p *Partition) Later() bool {
	n := len(p.Passes)
	return p.Done > 0 || n > 0 && p.Passes[n-1].Pass > 0 || slices.ContainsFunc(p.Excluded, func(e Exclusion) bool { return e.Pass > 0 }) ||
		slices.ContainsFunc(p.Dropped, func(x Drop) bool { return x.Pass > 0 })
}

// Pass says what is settled in one pass over a partition: everything below Low, and
// the ranges above it.
type Pass struct {
	Pass  uint32 `json:"pass"`
	Low   Place  `json:"low"`
	Units Units  `json:"units"` // below and above Low
	// Records counts the records in Units.Acked. nil: nobody counted them, and Counted
	// takes all units as untold.
	Records *Tally `json:"records,omitempty"`
	Ranges  Ranges `json:"ranges"`
}

// Place is a position in order space.
type Place struct{ Segment, Offset int64 }

// Compare orders places: by segment, then by offset.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}

// Ranges are sorted, and no two of them overlap.
type Ranges []Range

// Range is [Start, End) of order space. It may span several segments.
type Range struct {
	Start, End Place
	Kind       Kind
}

// Kind says why a range is settled.
type Kind uint8

// The binary form has these numbers.
const (
	Acked Kind = iota
	Excluded
	Dropped
	kinds
)

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

var kindNames = [kinds]string{"acked", "excluded", "dropped"}

// Piece is the records that begin in [Start, End) of one segment.
type Piece struct{ Segment, Start, End int64 }

// Exclusion is a piece of the input that is settled without being in any model.
type Exclusion struct {
	Pass   uint32 `json:"pass"`
	Piece  Piece  `json:"range"`
	Units  int64  `json:"units"`
	Kind   string `json:"kind"` // truncated, bad_record, too_old
	Reason string `json:"reason"`
	When   int64  `json:"when"` // ms since 1970
}

// Drop is a piece of the input that is settled without being in the model, because it lies
// beyond the last full round of a group (tail="drop"). Only the cut of a replicated model
// has some.
type Drop struct {
	Pass  uint32 `json:"pass"`
	Piece Piece  `json:"range"`
	Units int64  `json:"units"`
	Step  int64  `json:"step"` // of the last round
}

func (p Place) String() string { return fmt.Sprintf("segment %d offset %d", p.Segment, p.Offset) }

func (p Piece) String() string {
	return fmt.Sprintf("[%d, %d) of segment %d", p.Start, p.End, p.Segment)
}

func (r Range) String() string {
	if r.Start.Segment == r.End.Segment {
		return Piece{r.Start.Segment, r.Start.Offset, r.End.Offset}.String()
	}
	return fmt.Sprintf("the range from %v to %v", r.Start, r.End)
}

// Of returns an error if the cut is not of this job and model kind.
func (c *Cut) Of(job, model string) error {
	switch {
	case c.Job != job:
		return fmt.Errorf("the checkpoint is of job %q, this master runs job %q: name a checkpoint of this job", c.Job, job)
	case c.Model != model:
		return fmt.Errorf("the checkpoint is of a %s model, this job's model is %s: name a checkpoint of such a model, or start the master with --model %s", c.Model, model, c.Model)
	}
	return nil
}
