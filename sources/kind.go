package sources

import "time"

// Kind is what one kind of source can do. Its adapter declares it in one place, and
// everything else asks it: no other package compares names of kinds.
type Kind struct {
	Name string // of its field in a spec, and for people: "kafka"

	Unit string // what distances are counted in, for people: Bytes, Records or Entries

	// Keyed: records have keys, headers, times and tombstones, and no first line that
	// names their fields.
	Keyed bool
	// Rolls: a partition that grows may get further segments. Its last segment is then sealed
	// and the next one begins (a Pulsar ledger rolls over). If false, a partition that grows
	// has one segment for good.
	Rolls bool
	// Numbers: the source itself numbers its segments, and keeps the count while it is open. If
	// the ledger takes over the numbers of a restored checkpoint, the source must be opened
	// again.
	Numbers bool
	// Forgets: its Source is a Forgetter.
	Forgets bool
	// Deletes: its Source is a Deleter.
	Deletes bool
	// Pushed: records are pushed to the master, which appends sealed segments by itself.
	// Discovery lists its partitions and no segments.
	Pushed bool
	// HeadsEvery: how often the master asks for the heads of partitions that grow, unless one
	// of its settings says it; 0: the master's own default.
	HeadsEvery time.Duration

	// SideBySide: in how many partitions of bounded input one stream reads at a time. 0: in
	// one. It pays if a broker sends one partition more slowly than a trainer reads it.
	SideBySide int

	// Paths: each segment lies in a file, and Segment.Name is the file's path below the
	// root. Columns may take values from it.
	Paths bool

	// Backfills: its bounded input may be the history of a live source of another kind
	// (backfill in a spec).
	Backfills bool

	// Start is the field of a spec that says where reading begins; "": there is none.
	Start string
	End   End
	// Inexact says why bit_exact does not go with the kind, for people: "its queues are not read
	// as one sequence". "": it does.
	Inexact string

	Commits   bool // its Source is a Committer
	Retains   bool // its Source is a Retainer
	Foretells bool // its Source is a Keeper
	Posts     bool // its Source is a Poster
	Dates     bool // its Source is a Dater

	Sizes Sizes
	// Rows are the sizes for formats whose records are rows of columns: offsets count
	// rows there. Rows.Max 0: the kind has no such formats.
	Rows Sizes
}

// End is the field of a spec that says where input ends. Errors about what goes only with input
// that has an end, or only with live input, name it.
type End struct {
	Field string // "end"; "": there is none
	Never string // its value for live input
	Fixed string // a value for input with an end; "": its spec leaves the field out
	// Always: all input of the kind is live, whatever the field says.
	Always bool
}

// Units of distances. If a broker names a record by two numbers, one offset has both
// (Position). Then 1<<EntryBits offsets are one entry, which holds any number of records.
const (
	Bytes   = "bytes"
	Records = "records"
	Entries = "entries"

	EntryBits = 20
)

// InUnits converts a number of offsets to units. A part of an entry counts as one.
func InUnits(unit string, offsets int64) int64 {
	if unit != Entries || offsets <= 0 {
		return offsets
	}
	return (offsets-1)>>EntryBits + 1
}

// Sizes are the defaults of a spec's lease and blocks, in offsets.
type Sizes struct {
	Block        int64 // of shuffle and bit_exact
	Initial      int64 // a lease before a worker's rate is known
	Min, Max     int64
	MaxWhileLive int64 // Max of input without an end; 0: Max
}

// MaxVirtualRanks is how many virtual ranks a dataset with bit_exact may have, in its spec and in
// a cut. Each keeps a table of all segments.
const MaxVirtualRanks = 1024
