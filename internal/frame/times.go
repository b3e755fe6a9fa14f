package frame

import (
	"encoding/binary"
	"fmt"
)

// Times are the event times of the oldest and the newest row of a piece, in ms. Both are 0
// if no row has a time. A piece is the rows of one span in one batch.
type Times struct {
	Oldest int64 `json:"oldest"`
	Newest int64 `json:"newest"`
}

const timesSize = 16

// Pieces is the number of pieces of a frame.
func Pieces(rowsPerBatch int, spans []Span) (n int) {
	row := 0
	for i := range spans {
		if rows := int(spans[i].Rows); rows > 0 {
			n += (row+rows-1)/rowsPerBatch - row/rowsPerBatch + 1
			row += rows
		}
	}
	return n
}

func (h *Head) checkTimes(spans []Span) error {
	if n := len(h.Times); n > 0 && n != Pieces(h.RowsPerBatch, spans) {
		return fmt.Errorf("times of %d pieces for a frame of %d", n, Pieces(h.RowsPerBatch, spans))
	}
	return nil
}

// putTimes writes the block at b.
func putTimes(b []byte, all []Times) {
	for i, t := range all {
		binary.LittleEndian.PutUint64(b[timesSize*i:], uint64(t.Oldest))
		binary.LittleEndian.PutUint64(b[timesSize*i+8:], uint64(t.Newest))
	}
	clear(b[timesSize*len(all) : aligned(timesSize*len(all))])
}

// times reads the block; nil if there is none.
func (r *bufferReader) times(at uint64, n int) []Times {
	if at == 0 {
		return nil
	}
	b := r.region("times", at, uint64(timesSize*n))
	if r.err != nil {
		return nil
	}
	all := make([]Times, n)
	for i, v := range int64s(b) {
		if i%2 == 0 {
			all[i/2].Oldest = v
		} else {
			all[i/2].Newest = v
		}
	}
	return all
}
