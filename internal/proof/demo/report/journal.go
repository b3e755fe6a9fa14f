package report

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// About is how a trainer describes itself in its first entry.
type About struct {
	Rank      int     `json:"rank"`
	PID       int     `json:"pid"`
	Rate      float64 `json:"rate"` // rows/s of its pace
	BatchRows int     `json:"batch_rows"`
	// Check says what its rows' checksums are computed from: "" is the decoded values, "crc32" the
	// bytes of the record, for a trainer that decodes by itself.
	Check string `json:"check"`
}

// Journal is what one trainer process did. Times are CLOCK_MONOTONIC in ns; 0: there is no such entry.
type Journal struct {
	Name       string
	About      About
	Opened     int64
	Ready      int64
	Ended      int64 // when it saw the end of data
	Last       int64 // time of its last entry
	CPUSeconds float64
	Batches    []Batch
	Foreign    int // rows that are no record of the log, or differ from it
	Torn       bool
}

// Batch is one batch that a trainer got.
type Batch struct {
	Number                           uint64
	Yielded, Begun, Applied, Stepped int64
	Records                          []int32 // numbers in the log; -1: foreign
	Predictions                      []float32
}

// readJournal reads a whole journal and finds the record of each of its rows.
func readJournal(path string, truth *clicklog.Truth) (*Journal, error) {
	f, err := Follow(path, truth)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Journal, f.More()
}

// Follower reads a journal, also while it is being written.
type Follower struct {
	*Journal
	reader   *Reader
	truth    *clicklog.Truth
	segments map[int64]clicklog.Numbers
}

// Follow opens a journal. It reads nothing before More.
func Follow(path string, truth *clicklog.Truth) (*Follower, error) {
	r, err := OpenJournal(path)
	if err != nil {
		return nil, err
	}
	return &Follower{&Journal{Name: filepath.Base(path)}, r, truth, map[int64]clicklog.Numbers{}}, nil
}

// Close closes the file.
func (f *Follower) Close() error { return f.reader.Close() }

// More reads new entries. Torn then says whether the file ends inside an entry.
func (f *Follower) More() error {
	f.Torn = false
	for {
		e, err := f.reader.Next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, ErrTorn) {
			f.Torn = true
			return nil
		}
		if err == nil {
			err = f.add(e)
		}
		if err != nil {
			return fmt.Errorf("journal %s: %w", f.Name, err)
		}
	}
}

func (j *Follower) add(e Entry) error {
	j.Last = e.Time
	switch e.Kind {
	case Open:
		j.Opened = e.Time
		return json.Unmarshal(e.Payload, &j.About)
	case Ready:
		j.Ready = e.Time
	case Segment:
		var s struct {
			Segment int64
			Name    string
		}
		if err := json.Unmarshal(e.Payload, &s); err != nil {
			return err
		}
		numbers, ok := j.truth.Segment(s.Name)
		if !ok {
			return fmt.Errorf("segment %d is %q, which is neither a file of the log nor a partition of its topic", s.Segment, s.Name)
		}
		j.segments[s.Segment] = numbers
	case Yielded:
		if last := len(j.Batches); last > 0 && j.Batches[last-1].Applied == 0 {
			return fmt.Errorf("batch %d was yielded before batch %d was applied", e.Number, j.Batches[last-1].Number)
		}
		records, err := j.resolve(e)
		if err != nil {
			return err
		}
		j.Batches = append(j.Batches, Batch{Number: e.Number, Yielded: e.Time, Records: records})
	case Begin:
		b, err := j.current(e.Number)
		if err != nil {
			return err
		}
		b.Begun = e.Time
	case Applied:
		b, err := j.current(e.Number)
		if err != nil {
			return err
		}
		if b.Begun == 0 {
			return fmt.Errorf("batch %d was applied before it was begun", e.Number)
		}
		if len(e.Payload) != 4*len(b.Records) {
			return fmt.Errorf("batch %d: %d bytes of predictions for %d rows", e.Number, len(e.Payload), len(b.Records))
		}
		b.Applied = e.Time
		b.Predictions = make([]float32, len(b.Records))
		for i := range b.Predictions {
			b.Predictions[i] = math.Float32frombits(binary.LittleEndian.Uint32(e.Payload[4*i:]))
		}
	case Stepped:
		b, err := j.current(e.Number)
		if err != nil {
			return err
		}
		b.Stepped = e.Time
	case End:
		j.Ended = e.Time
		var used struct {
			CPUSeconds float64 `json:"cpu_seconds"`
		}
		err := json.Unmarshal(e.Payload, &used)
		j.CPUSeconds = used.CPUSeconds
		return err
	default:
		return fmt.Errorf("entry of unknown kind %d", e.Kind)
	}
	return nil
}

// current is the newest batch. An entry with this number must be about it.
func (j *Journal) current(number uint64) (*Batch, error) {
	if len(j.Batches) == 0 || j.Batches[len(j.Batches)-1].Number != number {
		return nil, fmt.Errorf("an entry is about batch %d, which is not the newest one", number)
	}
	return &j.Batches[len(j.Batches)-1], nil
}

// resolve finds the records of a Yielded entry, and compares their values with the truth.
func (j *Follower) resolve(e Entry) ([]int32, error) {
	p := e.Payload
	bad := fmt.Errorf("batch %d: the lengths in its YIELDED entry do not add up", e.Number)
	if len(p) < 8 {
		return nil, bad
	}
	runs := int(binary.LittleEndian.Uint32(p))
	if runs > len(p)/16 || len(p) != 8+16*runs+16*e.Rows {
		return nil, bad
	}
	offsets := p[8+16*runs:]
	checks := offsets[8*e.Rows:]
	records := make([]int32, 0, e.Rows)
	for k := range runs {
		run := p[8+16*k:]
		segment, rows := int64(binary.LittleEndian.Uint64(run)), binary.LittleEndian.Uint64(run[8:])
		if rows > uint64(e.Rows-len(records)) {
			return nil, bad
		}
		numbers, ok := j.segments[segment]
		if !ok {
			return nil, fmt.Errorf("batch %d: segment %d was not named by an earlier entry", e.Number, segment)
		}
		for range rows {
			i := len(records)
			offset := int64(binary.LittleEndian.Uint64(offsets[8*i:]))
			n, ok := numbers(offset)
			if !ok || j.check(n) != binary.LittleEndian.Uint64(checks[8*i:]) {
				j.Foreign++
				n = -1
			}
			records = append(records, int32(n))
		}
	}
	if len(records) != e.Rows {
		return nil, bad
	}
	return records, nil
}

// check is the right checksum of record n.
func (j *Follower) check(n int) uint64 {
	if j.About.Check == "crc32" && j.truth.Lines != nil {
		return uint64(j.truth.Lines[n])
	}
	return j.truth.Checks[n]
}
