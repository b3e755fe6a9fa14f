package sources

import (
	"context"
	"time"
)

// Keeper is implemented by sources whose broker deletes records by itself, after a
// time or above a size.
type Keeper interface {
	// Keeps says for each marked record, in order, how far it is from being
	// deleted. ahead is how far into the future it is worth to look closely;
	// negative: only what there is now matters, Low and Head.
	Keeps(ctx context.Context, marks []Mark, ahead time.Duration) ([]Kept, error)
}

// Kept is what is known about one record's way to deletion. What does not apply,
// or is not known, is Never.
type Kept struct {
	Partition PartitionID
	// The source has [Low, Head). Low is in the mark's segment or another one: segments
	// before Low's are deleted as a whole. A source whose segments have one run of
	// offsets in common answers in the mark's segment.
	Low, Head Position

	// ByAge: for so long at least the record stays as far as its age goes. The
	// source may keep it longer.
	ByAge time.Duration
	// Room: about so many offsets may still be added before the record is deleted
	// because the partition is too large; negative when it may happen any time.
	Room int64
	// Held: nothing but ByAge and Room deletes the record. So it says nothing that Low
	// moves: it follows what is not needed any more.
	Held bool
	// Retention: how long the source keeps records at most.
	Retention time.Duration

	Blind string // why ByAge or Room could not be asked for, "" if they could
	Err   error  // of this partition
	// Gone: the partition is not there any more, or what has its name is another
	// one. It comes with Err.
	Gone bool
}

// Never is a time, or an amount of records, that does not come.
const Never = 1<<63 - 1

// Comparer is implemented by sources whose broker may take back records that it has told,
// and put others in their place: Kafka after an unclean election.
type Comparer interface {
	// Compare tells which records were below a head that this Source has told (Bounds,
	// Keeps) and are not there any more as they were. Each is told once. With an error it
	// may have told of some of them.
	Compare(ctx context.Context) ([]Replaced, error)
}

// Replaced: the offsets [From, Before) of a partition's last segment mean other records
// now, or none yet.
type Replaced struct {
	Partition    PartitionID
	From, Before int64
}

// Rewriter is implemented by sources whose broker may take single records away while those
// around them stay, as compaction does: an empty position may have held a record.
type Rewriter interface {
	// Rewrites reports whether it does so in a partition, or may for all that is known.
	Rewrites(ctx context.Context, p PartitionID) (bool, error)
}
