package feed

import (
	"cmp"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// lease is a granted lease being read. Positions are in order space; the fields
// below grant are guarded by stream.mu.
type lease struct {
	id    hold.Lease
	grant *pb.Grant

	token hold.Token
	end   int64 // falls when the tail is stolen
	read  int64 // decoded up to here: the next row begins here or later
	cut   int64 // rows in frames reach up to here; cut <= read
	sent  int64 // delivered up to here; sent <= cut
	dry   bool  // read to its end

	// Only the cutter uses these.
	rd    *reading // that reads it, or nil
	round uint64   // the cutter's last choice that included this lease
}

// pieceAt is the piece that holds order position pos, or else the next piece after pos;
// len(pieces) if there is none.
func (l *lease) pieceAt(pos int64) int {
	for i, p := range l.grant.Pieces {
		if pos < p.OrderStart+p.End-p.Start {
			return i
		}
	}
	return len(l.grant.Pieces)
}

// passOf is a pass of a partition.
type passOf struct{ partition, pass uint32 }

func (l *lease) passOf() passOf { return passOf{l.grant.Partition, l.grant.Pass} }

// before reports whether l's records come before the other's in their pass. Pieces of
// different segments are in the order of their segments.
func (l *lease) before(o *lease) bool {
	return cmp.Or(cmp.Compare(l.grant.Segment, o.grant.Segment), cmp.Compare(l.grant.LeaseStart, o.grant.LeaseStart)) < 0
}

// span gives the part of piece i that is left to read from pos on when the lease
// ends at end; false if there is none.
func (l *lease) span(i int, pos, end int64) (sources.Range, sources.Position, bool) {
	p := l.grant.Pieces[i]
	r := sources.Range{
		Partition: sources.PartitionID(l.grant.Identity), Segment: p.Segment,
		Start: p.Start, End: min(p.End, p.Start+end-p.OrderStart),
	}
	from := sources.Position{Segment: p.Segment, Offset: p.Start + max(0, pos-p.OrderStart)}
	return r, from, from.Offset < r.End
}

// after is the order position of offset in piece i; offset is not before the piece's
// start. Positions without a record that follow a piece belong to it.
func (l *lease) after(i int, offset, end int64) int64 {
	p := l.grant.Pieces[i]
	if offset < p.End {
		return min(p.OrderStart+offset-p.Start, end)
	}
	if i+1 < len(l.grant.Pieces) {
		return min(l.grant.Pieces[i+1].OrderStart, end)
	}
	return end
}

// run is consecutive rows of one piece of one lease in a frame.
type run struct {
	l        *lease
	piece    int
	rows     int
	start    int64 // offset of the first record
	from, to int64 // order space; a run begins where the one before it ended
	times    frame.Times
}

// shift turns an offset of the run's segment into order space.
func (r *run) shift() int64 {
	p := r.l.grant.Pieces[r.piece]
	return p.OrderStart - p.Start
}

// work is a frame in the making: a builder, and which leases its rows are of.
type work struct {
	b      *frame.Builder
	region *region // that b is placed in, or nil
	runs   []run
	rows   int // per batch
	last   bool
	single bool  // one record, which may crash its trainer
	bytes  int64 // accounted for in the queue

	times []frame.Times // one for each part of a run in each batch; empty: no row has a time
}

// batches of w; one without rows is one empty batch of a round.
func (w *work) batches() int { return max(1, (w.b.Rows()+w.rows-1)/w.rows) }

// takes tells the Desk how far each batch reaches into each lease, and how many records it
// has.
func (w *work) takes(sizes []int32, takes []hold.Take) ([]int32, []hold.Take) {
	sizes, takes = sizes[:0], takes[:0]
	timed := false
	w.times = w.times[:0]
	if w.b.Rows() == 0 {
		return append(sizes, 0), takes
	}
	row, left, n := 0, w.rows, int32(0)
	for i := range w.runs {
		r := &w.runs[i]
		stop := row + r.rows
		all := hold.Tally{}
		for row < stop {
			take := min(left, stop-row)
			records := tally(w.b.Times[row : row+take])
			all.Add(records)
			w.times = append(w.times, frame.Times{Oldest: records.Oldest, Newest: records.Newest})
			row += take
			left -= take
			to := r.to
			if row < stop {
				to = w.b.Offsets[row] + r.shift()
			}
			if n > 0 && takes[len(takes)-1].Lease == r.l.id {
				takes[len(takes)-1].To = to
				takes[len(takes)-1].Add(records)
			} else {
				takes = append(takes, hold.Take{Lease: r.l.id, To: to, Tally: records})
				n++
			}
			if left == 0 {
				sizes = append(sizes, n)
				left, n = w.rows, 0
			}
		}
		r.times = frame.Times{Oldest: all.Oldest, Newest: all.Newest}
		timed = timed || all.Newest != 0
	}
	if !timed {
		w.times = w.times[:0]
	}
	if n > 0 {
		sizes = append(sizes, n)
	}
	return sizes, takes
}

// tally counts rows by their times. Most inputs have a time in each record, or in
// none.
func tally(times []int64) hold.Tally {
	t := hold.Tally{Rows: int64(len(times))}
	for _, ms := range times {
		if ms != 0 {
			t.Seen(ms)
		}
	}
	return t
}

// split moves all batches after the first n to rest, which is empty.
func (w *work) split(n int, rest *work) error {
	row := n * w.rows
	rest.last = w.last
	begin := 0
	for i := range w.runs {
		r := &w.runs[i]
		if begin+r.rows <= row {
			begin += r.rows
			continue
		}
		rest.runs = append(rest.runs, w.runs[i:]...)
		if keep := row - begin; keep > 0 {
			tail := &rest.runs[0]
			tail.start = w.b.Offsets[row]
			tail.from = tail.start + r.shift()
			tail.rows -= keep
			r.rows, r.to = keep, tail.from
			i++
		}
		w.runs = w.runs[:i]
		break
	}
	if err := w.b.MoveTail(row, rest.b); err != nil {
		return err
	}
	w.last = false
	return nil
}
