package shardsvc

import (
	"math"
	"slices"
	"sort"

	"github.com/headrace/headrace/shardsvc/line"
)

// Acked pieces in the store: one `a` key holds a run of pieces, in which each piece begins
// where the one before it ends. A trainer that steps fast brings many steps in one batch
// of the store, and all of them go into one key. If a piece changes, its whole key is
// written again, at most once per batch, or deleted.

// inKey says where a piece is stored: at the head of a key, or after the piece before it.
type inKey struct {
	head    bool // its key begins here
	stored  bool // and is in the store
	unsaved bool // and must be written: it is in pass.unsaved
}

// maxRun bounds how many pieces are written again when one of them changes.
const maxRun = 64

// addPiece stores one acked piece with its step.
func (lg *ledger) addPiece(ps *pass, r *account, k piece) {
	i := sort.Search(len(ps.acks), func(i int) bool { return ps.acks[i].start >= k.start })
	k.head = true
	if i > 0 {
		q := &ps.acks[i-1]
		if lg.sameRun(ps, q, &k) {
			if q.step == k.step && !lg.apart(q, &k) {
				q.end = k.end
				q.Add(k.Tally)
				lg.touch(ps, i-1)
				return
			}
			h := ps.headOf(i - 1)
			k.head = !ps.acks[h].unsaved || i-h >= maxRun
		}
	}
	ps.acks = slices.Insert(ps.acks, i, k)
	lg.touch(ps, i)
	r.recent.Push(recentPiece{ps, k.start, k.step})
}

// headOf is the piece at which the key of acks[i] begins.
func (ps *pass) headOf(i int) int {
	for !ps.acks[i].head {
		i--
	}
	return i
}

// touch marks the key of acks[i] to be written by the next Flush.
func (lg *ledger) touch(ps *pass, i int) {
	if h := &ps.acks[ps.headOf(i)]; !h.unsaved {
		h.unsaved = true
		ps.unsaved = append(ps.unsaved, h.start)
		lg.dirtyPieces(ps)
	}
}

// fate of a piece: whether it stays, leaves, or has joined the one before it.
type fate uint8

const (
	stays fate = iota
	leaves
	joins
)

// sweep asks decide about each piece k of acks[lo:hi]. q is the last piece before k that
// stays; nil: there is none.
func (lg *ledger) sweep(ps *pass, lo, hi int, decide func(q, k *piece) fate) {
	n := lo
	orphan := false // the piece before the next one has gone, perhaps out of the same key
	begin := func(k *piece) {
		if orphan && !k.head {
			k.inKey = inKey{head: true}
		}
		orphan = false
	}
	for i := lo; i < hi; i++ {
		k := ps.acks[i]
		var q *piece
		if n > 0 {
			q = &ps.acks[n-1]
		}
		f := decide(q, &k)
		if f == stays {
			begin(&k)
			ps.acks[n] = k
			n++
			if k.head && !k.stored {
				lg.touch(ps, n-1)
			}
			continue
		}
		switch {
		case k.head && k.stored:
			ps.dropped = append(ps.dropped, ps.StartPlace(k.start))
			lg.dirtyPieces(ps)
		case !k.head && !orphan:
			lg.touch(ps, n-1) // its key ends before it now
		}
		if f == joins {
			lg.touch(ps, n-1)
		}
		orphan = true
	}
	if orphan && hi < len(ps.acks) {
		begin(&ps.acks[hi])
	}
	ps.acks = slices.Delete(ps.acks, n, hi)
	if n < len(ps.acks) && ps.acks[n].head && !ps.acks[n].stored {
		lg.touch(ps, n)
	}
}

// keepPieces drops the pieces for which keep is false.
func (lg *ledger) keepPieces(ps *pass, keep func(*piece) bool) {
	lg.sweep(ps, 0, len(ps.acks), func(_, k *piece) fate {
		if keep(k) {
			return stays
		}
		return leaves
	})
}

// sameRun says whether k follows q in the same segment, by the same rank and generation.
func (lg *ledger) sameRun(ps *pass, q, k *piece) bool {
	return q.end == k.start && q.rank == k.rank && q.generation == k.generation &&
		ps.StartPlace(q.start).Segment == ps.StartPlace(k.start).Segment
}

// apart says that two neighbours must not be joined, because one of them has step 0. An
// ack with step 0 is in every cut that is frozen after it. If the rank has a cut that is
// frozen and not bound, that cut may have one of the two and not the other.
func (lg *ledger) apart(q, k *piece) bool {
	return lg.perRank && (q.step == 0 || k.step == 0) && lg.above.pinned(q.rank, 0, math.MaxInt64)
}

// recentPiece waits until its step is older than the kept history.
type recentPiece struct {
	ps    *pass
	start int64
	step  int64
}

// foldOld joins neighbours of one rank whose steps are both older than the kept history,
// because nobody can ask for a cut between them any more. Example: with a history of 128
// steps at step 500, pieces of steps 370 and 371 become one of step 371.
func (lg *ledger) foldOld(r *account) {
	old := r.step - lg.cfg.History
	var ps *pass
	lo, hi := 0, 0 // acks[lo:hi] of ps must still be looked at, together
	fold := func() {
		if ps != nil && len(ps.acks) >= manyPieces {
			lg.foldLater(ps, hi-lo)
		} else {
			lg.fold(ps, lo, hi, func(uint32) int64 { return old })
		}
	}
	for r.recent.Len() > 0 && r.recent.All()[0].step <= old {
		q := r.recent.Pop()
		if q.ps.gone {
			continue
		}
		if q.ps == ps && hi < len(ps.acks) && ps.acks[hi].start == q.start && ps.acks[hi].rank == r.no {
			hi++
			continue
		}
		fold()
		ps = q.ps
		lo = sort.Search(len(ps.acks), func(i int) bool { return ps.acks[i].start >= q.start })
		if hi = lo; lo < len(ps.acks) && ps.acks[lo].start == q.start && ps.acks[lo].rank == r.no {
			hi++
		}
	}
	fold()
}

// manyPieces is how many pieces a pass has at least before its old ones fold together, a good
// part of them at once. A fold moves all pieces behind it. With a thousand ranks there are a
// hundred thousand, and one fold for each rank and step would take longer than the step.
const manyPieces = 1024

// foldLater counts old pieces of ps. When they are an eighth of all, it folds them.
func (lg *ledger) foldLater(ps *pass, n int) {
	if ps.old += n; ps.old < len(ps.acks)/8 {
		return
	}
	ps.old = 0
	lg.fold(ps, 0, len(ps.acks), func(rank uint32) int64 { return lg.account(rank).step - lg.cfg.History })
}

// fold joins the old ones among acks[lo:hi] and their neighbours. old is the highest step of a
// rank that is old.
func (lg *ledger) fold(ps *pass, lo, hi int, old func(rank uint32) int64) {
	if lo == hi {
		return
	}
	lg.sweep(ps, lo, min(hi+1, len(ps.acks)), func(q, k *piece) fate {
		if q == nil || !lg.sameRun(ps, q, k) || max(q.step, k.step) > old(k.rank) {
			return stays
		}
		if lg.apart(q, k) || q.step != k.step && lg.above.pinned(q.rank, min(q.step, k.step), max(q.step, k.step)) {
			return stays
		}
		q.end, q.step = k.end, max(q.step, k.step)
		q.Add(k.Tally)
		return joins
	})
}

// putPieces writes the keys of ps that have changed, and deletes those that are gone.
func (fx *Effects) putPieces(ps *pass) {
	for _, at := range ps.dropped {
		fx.put(Delete, func(b []byte) []byte { return ps.appendAckKey(b, at) }, nil)
	}
	for _, start := range ps.unsaved {
		i := sort.Search(len(ps.acks), func(i int) bool { return ps.acks[i].start >= start })
		if i == len(ps.acks) || ps.acks[i].start != start || !ps.acks[i].unsaved {
			continue // it left since, or joined another
		}
		h := &ps.acks[i]
		h.stored, h.unsaved = true, false
		v := ackValue{rank: h.rank, generation: h.generation}
		for ; i < len(ps.acks) && (!ps.acks[i].head || &ps.acks[i] == h); i++ {
			k := &ps.acks[i]
			v.pieces = append(v.pieces, ackPiece{ps.EndPlace(k.end).Offset, k.step, k.Tally})
		}
		at := ps.StartPlace(start)
		fx.put(Set, func(b []byte) []byte { return ps.appendAckKey(b, at) }, v.append)
	}
	ps.dropped, ps.unsaved, ps.dirtyAcks = ps.dropped[:0], ps.unsaved[:0], false
}

func (ps *pass) appendAckKey(b []byte, at line.Place) []byte {
	return appendRangeKey(b, keyAck, ps.p.ds.id, ps.p.no, ps.n, at.Segment, at.Offset)
}
