package sources

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Truncated means that the source has deleted records that were asked for. Lost is their
// exact range.
type Truncated struct {
	Lost Range
	Name string // segment's name for people
	Err  error
}

func (e *Truncated) Error() string {
	return fmt.Sprintf("the source no longer has [%d, %d) of %s: %v", e.Lost.Start, e.Lost.End, e.Name, e.Err)
}
func (e *Truncated) Unwrap() error { return e.Err }

// Changed means that the source has other data now than when it was planned: a file was
// rewritten, a topic was made again.
type Changed struct {
	Range Range // empty: all of it, as far as is known
	Name  string
	What  string // what differs: "size 100, was 200"
}

func (e *Changed) Error() string {
	if e.Range.Start >= e.Range.End {
		return fmt.Sprintf("%s changed after it was planned (%s): delete the dataset and apply it again", e.Name, e.What)
	}
	return fmt.Sprintf("%s changed after it was planned (%s); range [%d, %d) cannot be read as planned: restore what was there, or delete the dataset and apply it again",
		e.Name, e.What, e.Range.Start, e.Range.End)
}

// Diverged means that the source took back records from Head on, which is below what was
// planned. It has other records at these positions, or none yet. So a position no longer
// says which record it means, and no cut could be exact: the dataset stops, whatever its
// on_loss says.
type Diverged struct {
	Range Range
	Name  string // of the segment or partition, for people; empty: the partition's identity
	Head  int64
}

func (e *Diverged) Error() string {
	return fmt.Sprintf("%s: the source took back the records from offset %d on, below the planned end %d of segment %d (a broker that lost its last records, as after an unclean election of a leader, or a topic that was made again). "+
		"Other records take their offsets, so nobody can say which of them are in the model, and the dataset stops whatever on_loss says. "+
		"Do not resume it: delete the dataset and apply it again; its start must be the first offset that has another record, which is %d or a lower one",
		cmp.Or(e.Name, string(e.Range.Partition)), e.Head, e.Range.End, e.Range.Segment, e.Head)
}

// Temporary means that another try after Backoff may succeed.
type Temporary struct {
	Err     error
	Backoff time.Duration
	// Away: the source does not answer, so nothing is known of the data. Readers try again
	// until it answers, however long that takes. The source must also give this error to the
	// master's questions, so that status shows since when it is away.
	Away bool
}

func (e *Temporary) Error() string { return e.Err.Error() }
func (e *Temporary) Unwrap() error { return e.Err }

// TooLarge means that one record is longer than max_record.
type TooLarge struct {
	Partition PartitionID
	Position  Position
	Name      string
	In        string // where in it ("row group 3, column /tags/*"), or ""
	Size      int64  // bytes seen, at least Limit+1
	Limit     int64
	Next      int64  // where the next record begins; 0: nobody knows
	Value     []byte // what the record begins with, or nil
}

func (e *TooLarge) Error() string {
	in := ""
	if e.In != "" {
		in = " (" + e.In + ")"
	}
	return fmt.Sprintf("the record at %s offset %d%s is longer than max_record %d bytes: raise max_record in the spec, apply it and resume the dataset", e.Name, e.Position.Offset, in, e.Limit)
}

// Malformed means that the bytes at a position cannot be split into records.
type Malformed struct {
	Position Position
	Name     string // what people call the file or the partition
	What     string
	Next     int64  // where the next record begins, if only this one is wrong; 0: nobody knows
	Value    []byte // what the record begins with, or nil
	Size     int64  // of the record, with Next
}

func (e *Malformed) Error() string {
	return fmt.Sprintf("%s at offset %d: %s", e.Name, e.Position.Offset, e.What)
}

// Alone is a record that cannot be read although the records after it can.
type Alone struct {
	Start, Next int64 // where it begins, and the next one
	Value       []byte
	Size        int64
}

// StandsAlone reports whether err is about one record only, so that the next one can be read.
func StandsAlone(err error) (Alone, bool) {
	if e, ok := errors.AsType[*TooLarge](err); ok && e.Next > e.Position.Offset {
		return Alone{e.Position.Offset, e.Next, e.Value, e.Size}, true
	}
	if e, ok := errors.AsType[*Malformed](err); ok && e.Next > e.Position.Offset {
		return Alone{e.Position.Offset, e.Next, e.Value, e.Size}, true
	}
	return Alone{}, false
}

// ValueOf copies the part of a record that an error keeps: at most its first 64 KiB.
func ValueOf(record []byte) []byte { return bytes.Clone(record[:min(len(record), 64<<10)]) }

// Untold is the error of a Committer or Retainer that could not tell the broker the marks of
// some partitions. Errs has these partitions. The broker was told the marks of all others.
type Untold struct{ Errs map[PartitionID]error }

const untoldNamed = 3 // partitions whose errors are in the text

// UntoldOf returns an *Untold with the errors that are not nil, or nil if there is none.
// errs[i] is the error of ids[i].
func UntoldOf(ids []PartitionID, errs []error) error {
	e := &Untold{map[PartitionID]error{}}
	for i, err := range errs {
		if err != nil {
			e.Errs[ids[i]] = err
		}
	}
	if len(e.Errs) == 0 {
		return nil
	}
	return e
}

func (e *Untold) Error() string {
	all := e.Unwrap()
	text := errors.Join(all[:min(len(all), untoldNamed)]...).Error()
	if more := len(all) - untoldNamed; more > 0 {
		text = fmt.Sprintf("%s\nand %d more partitions", text, more)
	}
	return text
}

// Unwrap returns all errors, in order of the partitions' identities.
func (e *Untold) Unwrap() []error {
	all := make([]error, 0, len(e.Errs))
	for _, id := range slices.Sorted(maps.Keys(e.Errs)) {
		all = append(all, e.Errs[id])
	}
	return all
}
