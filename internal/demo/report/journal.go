package report

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/headrace/headrace/internal/demo/clicklog"
)

// About is what a trainer says of itself in its first entry.
type About struct {
	Rank      int     `json:"rank"`
	PID       int     `json:"pid"`
	Rate      float64 `json:"rate"` // rows/s that it is paced to
	BatchRows int     `json:"batch_rows"`
}

// Journal is what one trainer process did. Times are CLOCK_MONOTONIC in ns, 0
// where the entry is not there.
type Journal struct {
	Name       string
	About      About
	Opened     int64
	Ready      int64
	Ended      int64 // it saw the end of data
	Last       int64 // time of its last entry
	CPUSeconds float64
	Batches    []Batch
	Foreign    int // rows that are no record of the log, or not as written
	Torn       bool
}

// Batch is one batch in the hands of a trainer.
type Batch struct {
	Number                           uint64
	Yielded, Begun, Applied, Stepped int64
	Records                          []int32 // numbers in the log; -1: foreign
	Predictions                      []float32
}

// ReadJournal reads a whole journal and finds each of its rows in the log.
func ReadJournal(path string, truth *clicklog.Truth) (*Journal, error) {
	r, err := OpenJournal(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	j := &Journal{Name: filepath.Base(path)}
	files := map[int64]clicklog.File{}
	for {
		e, err := r.Next()
		if err == io.EOF {
			return j, nil
		}
		if errors.Is(err, ErrTorn) {
			j.Torn = true
			return j, nil
		}
		if err == nil {
			err = j.add(e, truth, files)
		}
		if err != nil {
			return nil, fmt.Errorf("journal %s: %w", j.Name, err)
		}
	}
}

func (j *Journal) add(e Entry, truth *clicklog.Truth, files map[int64]clicklog.File) error {
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
		f, ok := truth.File(filepath.Base(s.Name))
		if !ok {
			return fmt.Errorf("segment %d is %q, which is no file of the log", s.Segment, s.Name)
		}
		files[s.Segment] = f
	case Yielded:
		if last := len(j.Batches); last > 0 && j.Batches[last-1].Applied == 0 {
			return fmt.Errorf("batch %d was yielded before batch %d was applied", e.Number, j.Batches[last-1].Number)
		}
		records, err := j.resolve(e, truth, files)
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

// current is the newest batch, which an entry with this number must be about.
func (j *Journal) current(number uint64) (*Batch, error) {
	if len(j.Batches) == 0 || j.Batches[len(j.Batches)-1].Number != number {
		return nil, fmt.Errorf("an entry about batch %d, which is not the newest one", number)
	}
	return &j.Batches[len(j.Batches)-1], nil
}

// resolve finds the records of a Yielded entry in the log and compares their values.
func (j *Journal) resolve(e Entry, truth *clicklog.Truth, files map[int64]clicklog.File) ([]int32, error) {
	p := e.Payload
	bad := fmt.Errorf("batch %d: the lengths in its YIELDED entry do not fit", e.Number)
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
		f, ok := files[segment]
		if !ok {
			return nil, fmt.Errorf("batch %d: segment %d was never named", e.Number, segment)
		}
		for range rows {
			i := len(records)
			offset := int64(binary.LittleEndian.Uint64(offsets[8*i:]))
			n, ok := truth.Number(f, offset)
			if !ok || truth.Checks[n] != binary.LittleEndian.Uint64(checks[8*i:]) {
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
