package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// Group is the rank of a cut that is not one rank's: replicated and shared.
const Group = int64(-1)

// Cut is the set of records that are in the model at a step (docs/CUTS.md). It is
// self-contained: it restores on an empty master. flashckpt/manifest owns its
// JSON.
type Cut struct {
	ID         uint64
	Epoch      uint32
	Generation uint32
	Rank       int64 // private: whose; else Group
	Step       int64
	World      uint32 // ranks of the group when it was frozen
	Exact      bool   // shared: false when the model may hold more than the cut
	// Order grows with every cut of a job, whatever the clocks say; 0: not known. It is
	// kept beside the encoded form.
	Order    uint64
	Datasets []CutDataset
}

// CutDataset is what of one dataset is in a cut. Order space depends on Shuffle,
// Seed and Block: a dataset with others can not take the cut.
type CutDataset struct {
	Name    string
	Unit    string // bytes | records
	Shuffle bool
	Seed    uint64
	Block   int64
	InOrder bool // blocks are not permuted
	// VirtualRanks: each partition is one virtual rank's, as its identity says.
	VirtualRanks uint32
	Partitions   []CutPartition
}

// CutPartition is what of one partition is in a cut.
type CutPartition struct {
	Number     PartitionNo
	Identity   string // sources.PartitionID
	Name       string // what people call it, if that is known; not kept with the cut
	Estimated  bool   // the source has no counts
	Complete   bool   // no segment follows those of the table, and all are in it
	PassesDone uint32 // passes [0, PassesDone) are wholly settled
	Done       CutUnits
	Records    Tally // of those passes
	// Segments up to the highest position that is named here. The end of an
	// unsealed one is as far as is known.
	Segments []sources.Segment
	Passes   []CutPass     // from PassesDone on; a pass that is not here has nothing in the cut
	Excluded []CutExcluded // of all passes
}

// later: the cut knows of a pass behind the first, which begins when all segments
// are known.
func (q *CutPartition) later() bool {
	n := len(q.Passes)
	return q.PassesDone > 0 || n > 0 && q.Passes[n-1].Pass > 0 || slices.ContainsFunc(q.Excluded, func(e CutExcluded) bool { return e.Pass > 0 })
}

func (p *CutPartition) label() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Identity
}

// CutPass is what of one pass is in a cut: all below Low, and Ranges above it, in
// order space.
type CutPass struct {
	Pass   uint32
	Low    Place
	Ranges []CutRange
	Units  CutUnits

	Records Tally
}

// Place is a position in order space.
type Place struct{ Segment, Offset int64 }

// CutRange is [Start, End) of order space.
type CutRange struct {
	Start, End Place
	Kind       Kind
}

// Kind says why a range is settled.
type Kind uint8

const (
	Acked    = Kind(line.Acked)
	Excluded = Kind(line.Excluded)
	Dropped  = Kind(line.Dropped)
)

func (k Kind) String() string {
	switch k {
	case Acked:
		return "acked"
	case Excluded:
		return "excluded"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// CutUnits counts units by kind.
type CutUnits struct{ Acked, Excluded, Dropped int64 }

// CutExcluded is a range that is settled without being in the model, in order
// space: [Start, End) of one segment.
type CutExcluded struct {
	Pass         uint32
	Segment      int64
	Start, End   int64
	Units        int64
	Kind, Reason string
	When         int64 // ms since 1970
}

// CutState is where in its life a kept cut is.
type CutState uint8

const (
	CutFrozen CutState = iota
	CutBound
	CutCarried
	CutVoided
	cutStates
)

func (s CutState) String() string {
	return [...]string{"frozen", "bound", "carried", "voided", "?"}[min(s, cutStates)]
}
