package sources

import (
	"context"
	"time"
)

// Keeper is implemented by sources whose broker deletes records by itself, after a
// time or above a size.
type Keeper interface {
	// Keeps says for each marked record, in order, how far it is from being deleted. The
	// forecast must be accurate for records that are deleted within ahead. If ahead is
	// negative, only Low and Head are wanted.
	Keeps(ctx context.Context, marks []Mark, ahead time.Duration) ([]Kept, error)
}

// Kept says what is known about the deletion of one record. A time or amount that does not
// apply, or is not known, is Never.
type Kept struct {
	// The source has [Low, Head). If Low is in another segment than the mark, all segments
	// before it are deleted. A source whose segments share one run of offsets (Kafka)
	// answers in the mark's segment.
	Low, Head Position

	// ByAge is how long the record stays at least before it is deleted because of its age. The
	// source may keep it longer.
	ByAge time.Duration
	// Room is about how many offsets may still be added before the record is deleted
	// because the partition is too large. Negative: it may be deleted at any time.
	Room int64
	// Retained says that only age and size can delete the record, because the broker retains
	// it for us. Then a moving Low is no sign of danger: the broker deletes records that
	// nobody needs any more.
	Retained bool
	// Retention is how long the source keeps records.
	Retention time.Duration

	Blind string // why ByAge or Room could not be asked for, "" if they could
	Err   error  // of this partition
	// Gone says that the partition does not exist any more, or that another one has its
	// name. Err is set then.
	Gone bool
}

// Never is a time that does not come, or an amount without a limit.
const Never = 1<<63 - 1

// Comparer is implemented by sources whose broker may take back confirmed records and put
// others in their place: Kafka after an unclean election, RocketMQ after a loss of power.
type Comparer interface {
	// Compare returns the ranges of records that the broker has replaced. It looks below the
	// heads that this Source has returned (Bounds, Keeps). It returns each range once. With an
	// error it may return some ranges too.
	Compare(ctx context.Context) ([]Replaced, error)
}

// Replaced says that the offsets [From, Before) of a partition's last segment have other
// records now, or none yet.
type Replaced struct {
	Partition    PartitionID
	From, Before int64
}

// Rewriter is implemented by sources whose broker may delete single records and keep those
// around them, as compaction does. So an empty position may have had a record.
type Rewriter interface {
	// Rewrites reports whether the broker does so in a partition. It is also true if that
	// is not known.
	Rewrites(ctx context.Context, p PartitionID) (bool, error)
}
