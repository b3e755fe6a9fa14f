package stepfile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/headrace/headrace/internal/frame"
)

// pieces are the runs of rows that a frame's batches are made of, as the trainer's client
// keeps them (Ledger in _ranges.py). Batches are asked for in order.
type pieces struct {
	rows, per uint32
	spans     []byte // as in a FRAME
	cuts      []byte // i64 each: where every batch but the first begins, in its segment
	times     []byte // i64, i64 each: the oldest and the newest event time of a piece

	span  int    // the one that the next batch begins in
	begun uint64 // rows before it
	piece int    // the number of the next piece
}

func (p *pieces) rowsOf(k uint32) uint32 {
	return uint32(min(uint64(p.per), uint64(p.rows)-min(uint64(p.rows), uint64(k)*uint64(p.per))))
}

var errRows = errors.New("its spans do not have as many rows as its frame")

// of returns the spans of batch k in order space, with their rows and event times.
func (p *pieces) of(k uint32) (all []frame.ResumeSpan, err error) {
	start := uint64(k) * uint64(p.per)
	stop := start + uint64(p.rowsOf(k))
	for at := start; at < stop; {
		if (p.span+1)*spanBytes > len(p.spans) {
			return nil, errRows
		}
		b := p.spans[p.span*spanBytes:]
		rows := uint64(binary.LittleEndian.Uint32(b))
		end := p.begun + rows
		s := frame.ResumeSpan{
			Partition: binary.LittleEndian.Uint32(b[4:]), Pass: binary.LittleEndian.Uint32(b[8:]), Dataset: binary.LittleEndian.Uint32(b[12:]),
			Segment: int64(binary.LittleEndian.Uint64(b[16:])), LeaseFrom: int64(binary.LittleEndian.Uint64(b[40:])), LeaseTo: int64(binary.LittleEndian.Uint64(b[48:])),
			Epoch: binary.LittleEndian.Uint32(b[56:]), Term: binary.LittleEndian.Uint32(b[60:]), Sequence: binary.LittleEndian.Uint64(b[64:]),
			Told: true,
		}
		shift := s.LeaseTo - int64(binary.LittleEndian.Uint64(b[32:])) // offset in the segment -> order space
		if at > p.begun {
			s.LeaseFrom = p.cut(k) + shift
		}
		upTo := min(end, stop)
		if upTo < end {
			if 8*int(k) >= len(p.cuts) {
				return nil, errRows
			}
			s.LeaseTo = p.cut(k+1) + shift
		}
		if upTo > at { // a span without rows is no batch's
			if s.LeaseFrom < 0 || s.LeaseTo <= s.LeaseFrom {
				return nil, fmt.Errorf("it takes [%d, %d) of a lease", s.LeaseFrom, s.LeaseTo)
			}
			s.Rows = int64(upTo - at)
			s.Oldest, s.Newest = p.timesOf(p.piece)
			p.piece++
			all = append(all, s)
		}
		if at = upTo; end <= stop {
			p.span, p.begun = p.span+1, end
		}
	}
	return all, nil
}

// cut is where batch k begins; k is never 0, and there is no batch after the last.
func (p *pieces) cut(k uint32) int64 {
	return int64(binary.LittleEndian.Uint64(p.cuts[8*(k-1):]))
}

func (p *pieces) timesOf(piece int) (oldest, newest int64) {
	if len(p.times) < (piece+1)*timeBytes {
		return 0, 0
	}
	return int64(binary.LittleEndian.Uint64(p.times[piece*timeBytes:])), int64(binary.LittleEndian.Uint64(p.times[piece*timeBytes+8:]))
}
