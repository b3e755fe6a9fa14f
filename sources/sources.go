package sources

import (
	"context"
	"strings"
	"time"
)

// PartitionID names one ordered sequence of records for good. It identifies the data and not
// the place: a topic that was deleted and made again has another PartitionID. It is
// printable and the same after restarts.
//
//	files     files:<dataset name>
//	landing   landing:<stream id>/<number>
//	kafka     kafka:<cluster id>/<topic id>/<number>
//	pulsar    pulsar:<topic>@<time at which it was made>
//	rocketmq  rocketmq:<cluster>/<broker>/<topic>/<queue>
//
// It begins with the name of its source's kind and a colon. A dataset may have partitions of
// two kinds (backfill in a spec).
type PartitionID string

// KindOf is the name of the kind of source that a partition's identity begins with.
func KindOf(identity string) string {
	kind, _, _ := strings.Cut(identity, ":")
	return kind
}

// Position is a place in a partition: the record that begins there, or the end
// of the range before it. Positions compare by Segment, then Offset.
//
// An offset is one integer. If a broker names a record by two numbers inside a segment, the
// source packs both into it, the more significant one first: a message of a Pulsar entry has
// entry<<20 | index. Offsets without a record are legal (see Batch.End).
type Position struct {
	Segment int64 // 0, a Pulsar ledger, a file; numbered once, durably
	Offset  int64 // in the source's unit: byte, row, offset, packed entry and index
}

// Compare returns -1, 0 or +1.
func (p Position) Compare(q Position) int {
	switch {
	case p.Segment != q.Segment:
		return sign(p.Segment < q.Segment)
	case p.Offset != q.Offset:
		return sign(p.Offset < q.Offset)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

// Range is the records that begin in [Start, End) of one segment. Every integer
// is a legal Start or End.
type Range struct {
	Partition  PartitionID
	Segment    int64
	Start, End int64
}

// Segment is a piece of a partition with its own run of offsets. Its JSON is that of
// a checkpoint's cut (docs/CHECKPOINTS.md).
type Segment struct {
	ID      int64  `json:"id"`
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
	Sealed  bool   `json:"sealed"`            // End is final
	Name    string `json:"name"`              // for people: a file's path (Kind.Paths), a ledger's number
	Locator []byte `json:"locator,omitempty"` // opaque: opens the segment on any node; travels in every grant
}

// Bounds says where a partition begins and ends now.
type Bounds struct {
	Partition PartitionID
	Low, Head Position
	Bounded   bool // no record will ever come after Head
	Estimated bool // distances are estimates (the source has no counts)
	Err       error
}

// Source is one place that records live in, opened for one dataset.
// Implementations are safe for concurrent use.
type Source interface {
	// Partitions lists the partitions. The list may grow.
	Partitions(ctx context.Context) ([]PartitionID, error)

	// Bounds answers for each asked partition, in order.
	Bounds(ctx context.Context, parts []PartitionID) ([]Bounds, error)

	// Segments lists at most max segments of p with ID > after (use -1 for the
	// first), in order of ID. Fewer than max means: no more for now. An ID, once
	// listed, always means the same segment. An implementation that numbers segments
	// itself (files) gets the segments that were numbered before when it is opened.
	Segments(ctx context.Context, p PartitionID, after int64, max int) ([]Segment, error)

	// Open reads the records that begin in r, starting at from (>= r.Start).
	// It needs nothing but the locator to find the segment.
	// Errors: *Truncated, *Changed, *Diverged, *Temporary, or permanent.
	Open(ctx context.Context, r Range, from Position, locator []byte) (Cursor, error)

	Close() error
}

// Cursor reads one range. It is used by one goroutine at a time.
type Cursor interface {
	// Next fills b with at least one record and returns nil, or returns io.EOF
	// itself (never wrapped: an error that wraps it is an error) at the end of
	// the range. It reuses b's memory. A record too large for the
	// source's limit is a *TooLarge error with its position.
	Next(ctx context.Context, b *Batch) error
	Close() error
}

// Batch is a run of records in one arena. Record i is
// Arena[Recs[i].Value[0]:Recs[i].Value[1]], or row i of Columns. Valid until the next call of Next.
type Batch struct {
	Arena []byte
	Recs  []Record
	// End is the position after the last record and after all positions without a record
	// that follow it. An ack of the whole batch has this prefix.
	End int64
	// Columns has the fields of records that are rows of columns: record i is row i of each, and
	// begins at FirstRow + i. There are Rows of them. Such records have no key, no value and no
	// time, and Arena and Recs are empty: a Record would take more memory than many rows do.
	Columns  []Column
	FirstRow int64
	Rows     int
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Arena, b.Recs, b.Columns, b.FirstRow, b.Rows, b.End = b.Arena[:0], b.Recs[:0], nil, 0, 0, 0
}

// Len is the number of records.
func (b *Batch) Len() int { return len(b.Recs) + b.Rows }

// Rec is record i, whether it lies in Recs or is a row of columns.
func (b *Batch) Rec(i int) Record {
	if b.Rows == 0 {
		return b.Recs[i]
	}
	r := Record{Offset: b.FirstRow + int64(i), Next: b.FirstRow + int64(i) + 1}
	if i == b.Rows-1 {
		r.Next = b.End
	}
	return r
}

// Cut leaves out the records from n on.
func (b *Batch) Cut(n int) {
	if n < b.Len() {
		b.End = b.Rec(n).Offset
	}
	b.Recs, b.Rows = b.Recs[:min(n, len(b.Recs))], min(n, b.Rows)
}

// Record is one record of a Batch; Key, Value and each header are [start, end)
// in the arena.
type Record struct {
	Offset     int64 // where it begins
	Next       int64 // where the next one begins: an ack up to this record has the prefix Next
	Key, Value [2]int32
	Time       int64 // ms since the epoch, or 0
	Headers    []Header
	Tombstone  bool // the value is null, which is not the empty value: the key is deleted
}

type Header struct{ Key, Value [2]int32 }

// Mark is a position of a partition to commit, or to retain from.
type Mark struct {
	Partition PartitionID
	Position  Position
	Back      bool // progress may have gone back on purpose: a rewind, or a new master that does not know what the last one told
}

// Poster is implemented by sources that can write dead letters to a topic of their broker.
type Poster interface {
	// Post returns when the broker has all values durably; value i has key i. After an
	// error the broker may have some of them.
	Post(ctx context.Context, topic string, keys, values [][]byte) error
}

// Committer is implemented by sources whose broker keeps its readers' progress.
type Committer interface {
	// Commit tells the broker our progress: all records below each mark are in a bound
	// checkpoint or, in a job that binds none, acked. It reads back what the broker keeps,
	// and returns nil only if that is the mark. It writes no older mark than the broker
	// has, unless Mark.Back is set. With an *Untold error it has told the broker of all
	// other partitions.
	Commit(ctx context.Context, marks []Mark) error
}

// Retainer is implemented by sources whose broker deletes records that no reader needs, and
// keeps those that a reader has asked it to keep.
type Retainer interface {
	// Begin makes the broker keep these partitions from where the dataset begins to read
	// them. It is called before their segments are listed for the first time, and again
	// after each start of a master. If the broker keeps a partition already, nothing
	// changes.
	Begin(ctx context.Context, parts []PartitionID) error
	// Retain says that nothing below each mark is needed any more; the mark is that of the
	// oldest kept checkpoint. It reads back what the broker keeps, and returns nil only if
	// the broker keeps everything from the mark on. A mark goes back only if Mark.Back is
	// set; records that were deleted before that stay deleted. An *Untold error means the
	// same as that of Commit.
	Retain(ctx context.Context, marks []Mark) error
	// Release removes what Begin and Commit made at the broker, because the dataset is
	// deleted. It is no error if there is nothing to remove.
	Release(ctx context.Context) error
}

// Tailing is implemented by cursors of segments that grow. A range may end ahead of head;
// Next then waits at head for records.
type Tailing interface {
	// OnHead sets a function that Next calls with the head in each answer of the source.
	// Call OnHead before the first Next.
	OnHead(f func(head int64))
}

// Namer is implemented by sources whose partitions have a name for people that differs from
// their identity: a topic's name, not its id.
type Namer interface {
	// PartitionName returns the name of a partition that Partitions has listed.
	PartitionName(p PartitionID) string
}

// NameOf returns the name of a partition for people: the one that the source gives it, else its
// identity.
func NameOf(src Source, p PartitionID) string {
	if n, ok := src.(Namer); ok {
		return n.PartitionName(p)
	}
	return string(p)
}

// Dater is implemented by sources whose broker finds records by their time.
type Dater interface {
	// Since returns, for each partition in order, the position before which every record is
	// older than t, as the broker's own index of times says. If no record is as new as t, that
	// is the end of the partition.
	Since(ctx context.Context, parts []PartitionID, t time.Time) ([]Position, error)
}

// Joiner is implemented by sources whose partitions may grow in number while they
// are read.
type Joiner interface {
	// Joined says that these partitions did not exist when the dataset was first listed.
	// They are read from their beginning, wherever the others begin.
	Joined(parts []PartitionID)
}

// Forgetter is implemented by sources that number segments themselves (Kind.Numbers) and do not
// need all of them when they are opened again: a folder that grows for years.
type Forgetter interface {
	// Forget says which segments of p the ledger may fold into one that has no locator.
	// segments are all that the ledger has of p. Those that end at or before below are settled
	// and in the oldest kept checkpoint. Of these, the ledger may fold each whose number is
	// less than before, except those in needed. Example: segments 0 to 6 end below the mark,
	// and 3 is still needed; before is 7, needed is [3], and the ledger may fold 0 to 2 and 4
	// to 6. It never folds the last segment of all.
	Forget(ctx context.Context, p PartitionID, segments []Segment, below Position) (before int64, needed []int64, err error)
}

// Deleter is implemented by sources that delete what was read, because the dataset's spec
// asks for it (Kind.Deletes).
type Deleter interface {
	// Delete deletes what the spec asks it to delete of the segments that end at or before
	// below. These are settled and in the oldest kept checkpoint. segments are all that the
	// ledger has of p.
	//
	// Before it deletes something, it calls due with the numbers, in order, of the segments
	// that may be gone afterwards. due returns a mark that may be lower than below, and Delete
	// deletes only segments that also end at or before that mark. Example: it calls due with
	// [0, 1, 2, 3], and due returns the end of segment 2: it deletes 0 to 2. If due returns an
	// error, it deletes nothing. A call takes a bounded time. If something cannot be deleted,
	// Delete logs it, and a later call tries again.
	Delete(ctx context.Context, p PartitionID, segments []Segment, below Position, due func([]int64) (Position, error)) (Deletions, error)
}

// Deletions is what a call of Delete found out.
type Deletions struct {
	Gone []int64 // numbers, in order, of the segments below the mark that are gone from the source
	More bool    // the time was up before all was deleted
}

// Headed is implemented by cursors of sources whose segments begin with something that
// names the fields: a header line (files with decode.header), or the schema with which
// their records were written (Avro files).
type Headed interface {
	// Header returns that line without its line end, or that schema; nil if there is none.
	// It is valid as long as the cursor. Segments of one source may have different headers.
	Header() []byte
}
