package sources

import (
	"fmt"
	"time"
)

// Truncated: the source has deleted what was asked for. Lost is the exact range.
type Truncated struct {
	Lost Range
	Name string // segment's name for people
	Err  error
}

func (e *Truncated) Error() string {
	return fmt.Sprintf("%s: the source no longer has [%d, %d) of %s: %v", e.Lost.Partition, e.Lost.Start, e.Lost.End, e.Name, e.Err)
}
func (e *Truncated) Unwrap() error { return e.Err }

// Changed: what is there now is not what was planned (a file was rewritten, a
// topic was made again).
type Changed struct {
	Range Range
	Name  string
	What  string // what differs: "size 100, was 200"
}

func (e *Changed) Error() string {
	return fmt.Sprintf("%s: %s changed after it was planned (%s); range [%d, %d) can not be read as planned: restore the file, or delete the dataset and apply it again",
		e.Range.Partition, e.Name, e.What, e.Range.Start, e.Range.End)
}

// Diverged: head fell below what was planned.
type Diverged struct {
	Range Range
	Head  int64
}

func (e *Diverged) Error() string {
	return fmt.Sprintf("%s: head is now %d, below the planned end %d of segment %d", e.Range.Partition, e.Head, e.Range.End, e.Range.Segment)
}

// Temporary: worth another try after Backoff.
type Temporary struct {
	Err     error
	Backoff time.Duration
}

func (e *Temporary) Error() string { return e.Err.Error() }
func (e *Temporary) Unwrap() error { return e.Err }

// TooLarge: one record is longer than the limit.
type TooLarge struct {
	Partition PartitionID
	Position  Position
	Name      string
	Size      int64 // bytes seen, at least Limit+1
	Limit     int64
}

func (e *TooLarge) Error() string {
	return fmt.Sprintf("%s: record at %s offset %d is longer than max_record %d bytes", e.Partition, e.Name, e.Position.Offset, e.Limit)
}

// Malformed: the bytes at a position can not be split into records.
type Malformed struct {
	Partition PartitionID
	Position  Position
	Name      string
	What      string
}

func (e *Malformed) Error() string {
	return fmt.Sprintf("%s: %s at offset %d: %s", e.Partition, e.Name, e.Position.Offset, e.What)
}
