package sim

import (
	"slices"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Rounds of a group (docs/ROUNDS.md): a trainer takes a batch only when it is told that every rank has its
// batch of that round. It never takes part in a step without a batch.

type (
	arrived struct {
		stream, through uint32
		last            bool
	}
	decided struct{ round hold.Round }
)

// rounding is the trainer's side of a stream with rounds.
type rounding struct {
	through uint32 // it may yield rounds up to this one
	last    bool
	sums    []uint64 // for each of them: the rows of all ranks, as it was told
	sizes   []uint64 // rows of each batch that it received
}

// drawRounds decides whether a seed plays rounds. It uses no dice, so that the seed's other draws do not
// change.
func (p *plan) drawRounds(seed uint64) {
	if seed%12 == 0 && p.exact == 0 { // other seeds seldom end with a drop and a save
		p.model = replicated
		for i := range p.datasets {
			p.datasets[i].opt.Strict = false
		}
	}
	if p.exact > 0 { // no clock ends its batches
		if p.rounds = p.model == replicated && seed%2 == 0; p.rounds {
			p.window = max(p.window, 2) // a round goes only when it is known whether another follows
		}
		return
	}
	if p.model != replicated || seed%3 != 0 {
		return
	}
	if p.rounds = true; p.maxWait == 0 {
		p.maxWait = 150 * millisecond
	}
	strict := slices.ContainsFunc(p.datasets, func(d datasetPlan) bool { return d.opt.Strict }) // it cannot be combined with rounds
	if p.drops = seed%6 == 0 && !strict; p.drops {
		p.window = max(p.window, 2) // a round goes only when all ranks have the next one too
		p.saves = max(p.saves, 1)
		p.forgets = seed%24 == 0
	}
}

// begin is what OPEN, or a resumed stream, says of rounds.
func (r *reader) begin(w *World) *hold.Rounds {
	if !w.plan.rounds {
		return nil
	}
	series := r.number
	if r.virtual > 0 {
		series = r.dataset // all virtual ranks share one series
	}
	return &hold.Rounds{Series: series, MaxWait: time.Duration(w.plan.maxWait), Drop: w.plan.drops, Told: r.through, ToldLast: r.last, ToldRows: slices.Clone(r.sums)}
}

// The agent's side.

// decide takes the master's decision, and tells the trainer.
func (f *feed) decide(d hold.Round) {
	f.closing = d.Close
	f.beyond = f.beyond || d.Last && f.s.a.w.plan.drops
	f.s.l.send(1, decided{d})
	f.poke()
}

// tellAhead tells the core what is here and not delivered, if that has changed.
func (f *feed) tellAhead() {
	if !f.rounds || f.busy || f.stopped {
		return
	}
	now := ahead{delivered: f.delivered, newest: f.newest, dry: true, told: true}
	n := 0
	for _, l := range f.leases {
		recs, _, met := f.s.a.w.recordsOf(l.grant, l.at, l.end)
		now.rows = now.rows || len(recs) > 0
		n += len(recs)
		now.dry = now.dry && (l.dry || met == nil && !f.s.a.w.mayGrow(l.grant, l.end))
	}
	now.full = n >= f.rows
	if now != f.said {
		f.said = now
		f.s.a.do(&hold.Ahead{Stream: f.id, Rows: now.rows, Full: now.full, Dry: now.dry, Newest: now.newest})
	}
}

type ahead struct {
	delivered       uint32
	newest          hold.Lease
	rows, dry, told bool
	full            bool
}

// flushes reports whether an unfinished batch, perhaps without rows, leaves now. n full batches are
// before it.
func (f *feed) flushes(b *batchInHand, n int) bool {
	if f.rounds {
		closes := f.closing > f.delivered+uint32(n)
		return closes && (f.s.a.w.plan.exact == 0 || f.state == pb.Standing_DRAINED || f.state == pb.Standing_END)
	}
	return b != nil && n == 0 && f.mayFlush()
}

// The trainer's side.

// hear takes a decision.
func (t *trainer) hear(d hold.Round) {
	r := t.streams[d.Stream.Number-1]
	if d.Through < r.through {
		t.w.fail("%s: rounds through %d, and %d was said before", t.name, d.Through, r.through)
		return
	}
	if n := len(r.sums) + len(d.Rows); n < int(d.Through) || len(d.Rows) > int(d.Through) {
		t.w.fail("%s: told of the rows of %d rounds, then of %d up to round %d", t.name, len(r.sums), len(d.Rows), d.Through)
		return
	}
	r.sums = append(r.sums[:int(d.Through)-len(d.Rows)], d.Rows...)
	r.through, r.last = d.Through, r.last || d.Last
	if r.last && t.w.plan.drops {
		t.dropBeyond(r)
	}
	// A batch may be ended for a row that is then found to be too old. Then it has no rows, and may come
	// after the last round: it is never yielded.
	beyond := func(b *batchInHand) bool { return b.number > r.through && len(b.recs) > 0 }
	if i := slices.IndexFunc(r.batches, beyond); r.last && i >= 0 {
		t.w.fail("%s: round %d is the last one, and it has received rows of %d", t.name, r.through, r.batches[i].number)
	}
	if t.w.tracing {
		t.w.tracef(t.name, "rounds of stream %d: through %d, last %v, close %d", r.number, d.Through, d.Last, d.Close)
	}
	if d.Over != "" {
		t.w.tracef(t.name, "WorldChanged: %s", d.Over)
		t.after(t.w.time(0, 50*millisecond), func() { t.kill("the world has changed") })
		return
	}
	t.work()
}

// dropBeyond gives back batches of rounds after the last one.
func (t *trainer) dropBeyond(r *reader) {
	for len(r.batches) > 0 && r.batches[len(r.batches)-1].number > r.through {
		k := len(r.batches) - 1
		t.w.books.givenBack(t, r.batches[k].recs)
		r.batches, r.sizes = r.batches[:k], r.sizes[:len(r.sizes)-1]
		r.received--
	}
	if t.l != nil {
		t.l.send(0, arrived{r.number, r.received, true})
	}
}

// yields is how many batches of r the loop may take now.
func (r *reader) yields(w *World) uint32 {
	if w.plan.rounds {
		return min(r.received, max(r.through, r.yielded)) - r.yielded
	}
	return r.received - r.yielded
}

// atEnd reports whether nothing of r follows.
func (r *reader) atEnd(w *World) bool {
	if w.plan.rounds {
		return r.last && r.stepped == r.through
	}
	return r.ended && r.stepped == r.received
}

// roundStream is the stream whose round all ranks take in the next step of the group. A rank that has not
// heard yet that a stream is at its end waits for that.
func (t *trainer) roundStream() *reader {
	first := int(t.group.step) % len(t.streams)
	for i := range t.streams {
		if r := t.streams[(first+i)%len(t.streams)]; !r.atEnd(t.w) {
			return r
		}
	}
	return nil
}

// judgeRound checks that either all ranks of a group get a round, or none does. The batch of the round that t
// takes now must be in the process of every rank, or must have been when that process ended. t was told
// how many rows the ranks have together.
func (t *trainer) judgeRound(r *reader) {
	t.judgeFull(r)
	has := make([]bool, t.group.size)
	if r.virtual > 0 {
		has = make([]bool, t.w.plan.exact)
	}
	rows, members := uint64(0), 0
	for _, o := range t.generationOf() {
		for _, from := range o.of(r.dataset) {
			if from.received < r.yielded {
				continue
			}
			member := o.rank
			if r.virtual > 0 {
				member = from.virtual - 1
			}
			has[member] = true
			rows, members = rows+from.sizes[r.yielded-1], members+1
		}
	}
	if told := r.sums[r.yielded-1]; members == len(has) && told != rows {
		t.w.fail("%s takes round %d of dataset %d, which has %d rows on all ranks, and was told of %d", t.name, r.yielded, r.dataset, rows, told)
	}
	if member := slices.Index(has, false); member >= 0 {
		t.w.fail("%s takes round %d of dataset %d, and rank or virtual rank %d has not received it", t.name, r.yielded, r.dataset, member)
	}
}

// judgeLast: t has ended. All ranks of its generation that have ended must have trained the same rounds.
func (t *trainer) judgeLast() {
	for _, r := range t.streams {
		for _, o := range t.generationOf() {
			for _, from := range o.of(r.dataset) {
				if n := from.yielded; o.finished && n != r.yielded {
					t.w.fail("%s has trained %d rounds of dataset %d, and %s %d", t.name, r.yielded, r.dataset, o.name, n)
				}
			}
		}
	}
}

// generationOf lists the processes of t's generation. The launcher's group may differ: a rank of it may have
// been replaced before all had joined. A master that has lost its disk counts generations from 1 again,
// so processes that ended before t began are left out.
func (t *trainer) generationOf() (all []*trainer) {
	for _, o := range t.w.trainers {
		if o.generation == t.generation && o.generation != 0 && o.group.size == t.group.size && (o.alive || o.died > t.born) {
			all = append(all, o)
		}
	}
	return all
}

// of lists the streams of a dataset: one, or those of the rank's virtual ranks.
func (t *trainer) of(dataset uint32) []*reader {
	return slices.DeleteFunc(slices.Clone(t.streams), func(r *reader) bool { return r.dataset != dataset })
}
