package stepfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/headrace/headrace/internal/frame"
)

// The layout is told in connectors/python/src/headrace/_stepfile.py.
const (
	magic      = "HRSTEP01"
	version    = 1
	headBytes  = 28
	steppedAt  = 64
	durableAt  = 128
	markBytes  = 32
	aboutAt    = 256
	frameBytes = 48
	spanBytes  = 96
	timeBytes  = 16
	maxBytes   = 64 << 20 // of a file
)

// ErrDamaged is wrapped by every error about what a step file holds.
var ErrDamaged = errors.New("the step file is damaged")

// About says whose step file it is.
type About struct {
	Job         string            `json:"job"`
	Agent       string            `json:"agent"`
	Rank        uint32            `json:"rank"`
	WorldSize   uint32            `json:"world_size"`
	Attempt     uint32            `json:"attempt"`
	Incarnation frame.Incarnation `json:"incarnation"`
	PID         int32             `json:"pid"`
	MadeNS      int64             `json:"made_ns"`
	Generation  uint32            `json:"generation"`
	Stream      uint32            `json:"stream"`
	Dataset     uint32            `json:"dataset"`
	Virtual     *uint32           `json:"virtual,omitempty"`
}

// Stream is what one step file says.
type Stream struct {
	About
	Durable uint32 // batches that the master has answered
	Through uint32 // batches that are in the model
	Step    int64  // as of this step of the process; 0: it said none
	Batches []frame.ResumeBatch
	Missing uint32 // batches up to Through that it does not list, since it was full
}

// Parse reads a step file of a process that has ended. Batches are those above Durable that
// the process had received, in order; those that were stepped have Step. Errors wrap
// ErrDamaged.
func Parse(b []byte) (*Stream, error) {
	s := &Stream{}
	if err := s.head(b); err != nil {
		return nil, err
	}
	through, step, ok := mark(b[steppedAt:])
	durable, oldest, ok2 := mark(b[durableAt:])
	if !ok || !ok2 || through > maxBatches || durable > through {
		return nil, fmt.Errorf("%w: it has no whole mark of what was stepped", ErrDamaged)
	}
	s.Durable, s.Through, s.Step = uint32(durable), uint32(through), step
	if err := s.frames(b, oldest); err != nil {
		return nil, err
	}
	if listed := s.Durable + uint32(len(s.Batches)); listed < s.Through {
		s.Missing, s.Through = s.Through-listed, listed
	}
	for i := range s.Batches[:s.Through-s.Durable] {
		s.Batches[i].Step = &s.Step
	}
	return s, nil
}

const maxBatches = 1<<32 - 2

func (s *Stream) head(b []byte) error {
	if len(b) < aboutAt || string(b[:8]) != magic {
		return fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return fmt.Errorf("%w: it has version %d, this agent reads %d", ErrDamaged, v, version)
	}
	about := binary.LittleEndian.Uint32(b[12:])
	if uint64(about) > uint64(len(b)-aboutAt) || uint64(len(b)) > binary.LittleEndian.Uint64(b[16:]) {
		return fmt.Errorf("%w: it has %d bytes, and its head says another number", ErrDamaged, len(b))
	}
	text := b[aboutAt : aboutAt+about]
	if crc32.Update(crc32.ChecksumIEEE(b[:headBytes-4]), crc32.IEEETable, text) != binary.LittleEndian.Uint32(b[headBytes-4:]) {
		return fmt.Errorf("%w: its head has another checksum", ErrDamaged)
	}
	if err := json.Unmarshal(text, &s.About); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if s.Stream == 0 || s.Incarnation == 0 {
		return fmt.Errorf("%w: it names no stream or no process", ErrDamaged)
	}
	return nil
}

// mark returns the newer whole mark of a pair.
func mark(b []byte) (a uint64, v int64, ok bool) {
	newest := uint64(0)
	for i := range 2 {
		m := b[i*markBytes : (i+1)*markBytes]
		number := binary.LittleEndian.Uint64(m)
		if number <= newest || number != binary.LittleEndian.Uint64(m[24:]) {
			continue // it is older, or the trainer was killed while it wrote it
		}
		newest, ok = number, true
		a, v = binary.LittleEndian.Uint64(m[8:]), int64(binary.LittleEndian.Uint64(m[16:]))
	}
	return a, v, ok
}

// frames follows the frames from the oldest on, until one is not whole or does not follow the one
// before it. No batch of that frame was yielded.
func (s *Stream) frames(b []byte, oldest int64) error {
	next := s.Durable + 1
	for at := uint64(oldest); at != 0; {
		if at > uint64(len(b)) {
			return nil
		}
		f := parseFrame(b[at:])
		if f == nil || f.first > next || f.last() < next || f.first < next && len(s.Batches) > 0 {
			return nil
		}
		for n := f.first; n <= f.last(); n++ {
			spans, err := f.spans.of(n - f.first)
			if err != nil {
				return fmt.Errorf("%w: batch %d: %w", ErrDamaged, n, err)
			}
			if n >= next { // of the oldest frame some are durable
				s.Batches = append(s.Batches, frame.ResumeBatch{Number: n, Rows: f.spans.rowsOf(n - f.first), Spans: spans})
			}
		}
		next, at = f.last()+1, f.next
	}
	return nil
}

// storedFrame is a frame as it lies in a step file.
type storedFrame struct {
	first, batches uint32
	next           uint64
	spans          pieces
}

func (f *storedFrame) last() uint32 { return f.first + f.batches - 1 }

// parseFrame reads the frame that b begins with; nil: there is no whole one.
func parseFrame(b []byte) *storedFrame {
	if len(b) < frameBytes || string(b[:4]) != "FRM1" {
		return nil
	}
	u := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	size, rows, per, spans, times := u(1), u(4), u(5), u(6), u(7)
	f := &storedFrame{first: u(2), batches: u(3), next: binary.LittleEndian.Uint64(b[40:])}
	if f.first == 0 || f.batches == 0 || uint64(f.first)+uint64(f.batches)-1 > maxBatches || per == 0 || times%timeBytes != 0 {
		return nil
	}
	if uint64(f.batches) != max(1, (uint64(rows)+uint64(per)-1)/uint64(per)) {
		return nil
	}
	need := frameBytes + spanBytes*uint64(spans) + 8*uint64(f.batches-1) + uint64(times)
	if uint64(size) != need || uint64(size) > uint64(len(b)) {
		return nil
	}
	var head [frameBytes]byte
	copy(head[:32], b)
	if crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, b[frameBytes:size]) != u(8) {
		return nil
	}
	b = b[frameBytes:size]
	cuts := b[spanBytes*spans:]
	f.spans = pieces{rows: rows, per: per, spans: b[:spanBytes*spans], cuts: cuts[:8*(f.batches-1)], times: cuts[8*(f.batches-1):]}
	return f
}
