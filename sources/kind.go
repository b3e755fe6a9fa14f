package sources

import "time"

// Kind is what one kind of source can do. Its adapter declares it in one place, and
// everything else asks it: no other package compares names of kinds.
type Kind struct {
	Name string // of its part of a spec, and of the kind for people: "kafka"

	// Unit is what distances are counted in, for people: "bytes", "records",
	// "entries". UnitSize is how many offsets one unit takes, 1 where it is 0: a Pulsar
	// entry takes 1<<20. Estimated: a unit is not a record, and holes are in the count.
	Unit      string
	UnitSize  int64
	Estimated bool

	// Keyed: records have keys, headers, times and tombstones, and no first line that
	// names their fields.
	Keyed bool
	// Rolls: a partition that grows may get further segments: its last one is sealed
	// then, and the next one begins (a Pulsar ledger rolls over). Where it is false, a
	// partition that grows has one segment for good.
	Rolls bool
	// HeadsEvery: how often the heads of partitions that grow are looked for, where no
	// setting of the master says it; 0: the master's own default.
	HeadsEvery time.Duration

	Commits   bool // its Source is a Committer
	Retains   bool // its Source is a Retainer
	Foretells bool // its Source is a Keeper

	Sizes Sizes
}

// Sizes are the defaults of a spec's lease and blocks, in offsets.
type Sizes struct {
	Block        int64 // of shuffle and bit_exact
	Initial      int64 // a lease before a worker's rate is known
	Min, Max     int64
	MaxWhileLive int64 // Max of input without an end; 0: Max
}
