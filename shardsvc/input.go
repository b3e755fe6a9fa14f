package shardsvc

import "strings"

// A dataset may have two inputs: its source, which has no end, and a backfill, the bounded
// history of it. Each partition belongs to one of them. Each input has its own unit, so
// lease sizes and the rates of workers are kept for each input.
type input uint8

const (
	fromSource input = iota
	fromBackfill
	inputs
)

// Backfill says what the ledger needs to know of a dataset's backfill.
type Backfill struct {
	Kind string // identities of its partitions begin with it and a colon; "": there is none
	Unit string // bytes | records | entries
	// Initial, Min and Max are the sizes of its leases.
	Initial, Min, Max int64
	// NewestFirst: the source is granted first, and the backfill fills what time is left
	// (catch_up: newest_first). Otherwise nothing of the source is granted while records of
	// the backfill are neither leased nor settled (in_order).
	NewestFirst bool
}

func (o *Options) hasBackfill() bool { return o.Backfill.Kind != "" }

// inputOf returns the input to which the partition of an identity belongs.
func (o *Options) inputOf(identity string) input {
	if o.hasBackfill() && strings.HasPrefix(identity, o.Backfill.Kind+":") {
		return fromBackfill
	}
	return fromSource
}

// sizes returns the lease sizes of an input.
func (o *Options) sizes(in input) (initial, least, most int64) {
	if in == fromBackfill {
		return o.Backfill.Initial, o.Backfill.Min, o.Backfill.Max
	}
	return o.Initial, o.Min, o.Max
}

// unit of an input's offsets.
func (o *Options) unit(in input) string {
	if in == fromBackfill {
		return o.Backfill.Unit
	}
	return o.Unit
}

// UnitOf is the unit of the offsets of a partition.
func (o *Options) UnitOf(identity string) string { return o.unit(o.inputOf(identity)) }
