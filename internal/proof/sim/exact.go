package sim

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// A bit_exact job: the input is dealt out to a fixed number of virtual ranks. Each virtual rank is one
// stream of one rank, and a step takes the next batch of each. So the batches of every step are known
// beforehand, whatever the world size and whichever process is killed.

// beExact makes the plan one of a bit_exact job.
func (p *plan) beExact(w *World) {
	p.exact = w.of(1, 4)
	p.ranks = min(p.ranks, p.exact)
	p.live, p.maxWait = false, 0
	o := &p.datasets[0].opt
	p.datasets = p.datasets[:1]
	o.Strict, o.Shuffle, o.VirtualRanks, o.Block = true, true, uint32(p.exact), int64(w.of(1, 12))
	if o.InOrder, o.Seed = w.oneIn(2), 0; !o.InOrder {
		o.Seed = w.r.Uint64()
	}
}

// identities are the core's names for a partition of the source.
func (w *World) identities(p *part) []string {
	if w.plan.exact == 0 {
		return []string{p.identity}
	}
	var all []string
	for v := range w.plan.exact {
		all = append(all, cut.VirtualIdentity(p.identity, v, w.plan.exact))
	}
	return all
}

// lots computes the batches of each virtual rank: block i of a pass belongs to virtual rank i mod V, and
// all batches but the last have all their rows.
func (w *World) lots() {
	if w.plan.exact == 0 {
		return
	}
	w.lot, w.dealt = make([][]int32, w.plan.exact), make([]int, w.records)
	p, o := w.input.parts[0], &w.plan.datasets[0].opt
	for pass := range uint32(o.Passes) {
		d := cut.Dataset{Shuffle: &cut.Shuffle{Seed: o.Seed, Block: o.Block, InOrder: o.InOrder}}
		blocks := map[int64][]int32{}
		p.eachPlace(&d, pass, func(i int, at int64) {
			blocks[at/o.Block] = append(blocks[at/o.Block], int32(int(pass)*w.input.total+i))
		})
		for at := range int64(p.blocks(o.Block)) {
			v := at % int64(w.plan.exact)
			w.lot[v] = append(w.lot[v], blocks[at]...)
			for _, r := range blocks[at] {
				w.dealt[r] = int(v)
			}
		}
	}
}

// reads reports whether a record belongs to a partition of the core.
func (w *World) reads(identity string, rec int) bool {
	if w.plan.exact == 0 {
		return true
	}
	_, v := cut.SourceIdentity(identity, uint32(w.plan.exact))
	return w.dealt[rec] == v
}

// checkBatch checks that a virtual rank's batch in a step is the expected one.
func (w *World) checkBatch(t *trainer, r *reader, b *batchInHand, step int64) {
	lot := w.lot[r.virtual-1]
	from := min((int(step)-1)*r.rows, len(lot))
	want := lot[from:min(from+r.rows, len(lot))]
	if !slices.Equal(b.recs, want) {
		w.fail("%s: the batch of virtual rank %d in step %d has %d records %v, not %d: %v", t.name, r.virtual-1, step, len(b.recs), b.recs, len(want), want)
	}
}

// workExact takes the next batch of each stream that has not ended, when all are there.
func (t *trainer) workExact() {
	if t.w.plan.rounds {
		t.workRound()
		return
	}
	ended := true
	for _, r := range t.streams {
		over := r.ended && r.stepped == r.received
		if !over && r.received == r.yielded {
			return // called again when the batch comes
		}
		ended = ended && over
	}
	if ended && t.group.allEnded {
		t.finish()
		return
	}
	t.busy = true
	if ended { // other ranks may go on
		t.after(t.pace, func() { t.group.arrive(t, t.streams[0], 0) })
		return
	}
	k := 0
	for _, r := range t.streams {
		if r.received > r.yielded {
			r.yielded++
			t.credits(r)
			k++
		}
	}
	t.after(t.pace, func() { t.group.arrive(t, t.streams[0], uint32(k)) })
}

// workRound takes the next batch of each stream when all ranks may do so. It ends when all ranks end.
func (t *trainer) workRound() {
	ended, ready := true, true
	for _, r := range t.streams {
		ended, ready = ended && r.atEnd(t.w), ready && r.yields(t.w) > 0
	}
	switch {
	case ended:
		t.finish()
	case ready:
		t.busy = true
		for _, r := range t.streams {
			r.yielded++
			t.judgeRound(r)
			t.credits(r)
		}
		t.after(t.pace, func() { t.group.arrive(t, t.streams[0], uint32(len(t.streams))) })
	}
}

// intoExact puts the list of batches of a step into the model.
func (t *trainer) intoExact(step int64) {
	for _, r := range t.streams {
		if r.yielded > r.stepped {
			t.w.checkBatch(t, r, r.batch(r.stepped+1), step)
			t.into(r, 1)
		}
	}
}

// steppedExact reports the step of all its streams together.
func (t *trainer) steppedExact(step int64) {
	var said []*reader
	for _, r := range t.streams {
		if r.yielded > r.stepped {
			said = append(said, r)
		}
	}
	if len(said) == 0 {
		t.stepped(t.streams[0], 0, step)
	}
	for i, r := range said {
		t.stepped(r, 1, step)
		t.outbox[len(t.outbox)-1].ev.More = i < len(said)-1
	}
}

// makeStreams opens the streams: one for each dataset, or for each virtual rank of this rank.
func (t *trainer) makeStreams() {
	w := t.w
	for i := range w.input.datasets {
		if w.plan.exact == 0 {
			t.streams = append(t.streams, &reader{number: uint32(i + 1), dataset: uint32(i + 1), rows: w.of(1, w.plan.rows)})
			continue
		}
		for v := int(t.rank); v < w.plan.exact; v += t.group.size {
			t.streams = append(t.streams, &reader{number: uint32(len(t.streams) + 1), dataset: 1, virtual: uint32(v + 1), rows: w.plan.rows})
		}
	}
}
