package sim

import (
	"fmt"
	"slices"
)

// model is the result of training: a sum and a count of records, as in the chaos test, and how often each
// record is in it.
type model struct {
	sum   uint64
	count int
	times []uint8
}

func (w *World) newModel() *model { return &model{times: make([]uint8, w.records)} }

func (m *model) add(recs []int32) {
	for _, r := range recs {
		m.sum += mix(r)
		m.count++
		m.times[r]++
	}
}

func (m *model) clone() *model {
	c := *m
	c.times = slices.Clone(m.times)
	return &c
}

// books are the journals of all trainers. They know nothing of leases. They know which trainer received a
// record, which put it into a model, and which was told that this is durable.
type books struct {
	w    *World
	recs [][]entry
	out  []Time // by record: when its exclusion was durable; 0: it is not excluded
}

type entry struct {
	t    *trainer
	at   Time
	is   uint8
	said bool // step() has returned
}

const (
	inHand uint8 = iota
	inModel
	durable
)

func (b *books) entry(t *trainer, rec int32) *entry {
	for i := range b.recs[rec] {
		if e := &b.recs[rec][i]; e.t == t {
			return e
		}
	}
	return nil
}

// received notes that a batch has arrived at a trainer.
func (b *books) received(t *trainer, recs []int32, sent Time) {
	w := b.w
	for _, r := range recs {
		w.yields++
		if t.base != nil && t.base.times[r] > 0 || w.plan.model == private && t.model.times[r] > 0 {
			w.fail("%s is given to %s, which has it in its model", w.input.where(r), t.name)
		}
		if at := b.out[r]; w.plan.model == shared && at > 0 && sent > at && !t.nobodyEnds() {
			w.fail("%s is given to %s, and it was excluded", w.input.where(r), t.name)
		}
		for i := range b.recs[r] {
			if why := b.clash(&b.recs[r][i], t); why != "" {
				w.fail("%s is given to %s, and %s %s", w.input.where(r), t.name, b.recs[r][i].t.name, why)
				return
			}
		}
		if w.inOrder(r) {
			if why := b.early(t, r); why != "" {
				w.fail("%s is given to %s before %s", w.input.where(r), t.name, why)
				return
			}
		}
		b.recs[r] = append(b.recs[r], entry{t: t, at: w.now, is: inHand})
	}
}

// givenBack notes that t had records in hand and will never train on them.
func (b *books) givenBack(t *trainer, recs []int32) {
	for _, r := range recs {
		b.recs[r] = slices.DeleteFunc(b.recs[r], func(e entry) bool { return e.t == t && e.is == inHand })
	}
}

// clash says why t must not get a record that e's trainer had before.
func (b *books) clash(e *entry, t *trainer) string {
	w, q := b.w, e.t
	if q == t {
		return "had it already"
	}
	switch w.plan.model {
	case replicated:
		if q.group == t.group && q.generation == t.generation {
			return "is of the same generation and had it already"
		}
		return ""
	case private:
		if e.is == durable && t.slot.cur == t && !t.givenUp && t.lost == 0 && t.born >= t.slot.rewound && q.slot.cur == q && e.at > q.slot.rewound && (q.finished && !q.givenUp || q.alive && !q.fenced && !q.stopped && q.welcomed && q.l != nil) && !b.lostTouch(e) {
			return "has it in its model, durably"
		}
		return ""
	}
	if t.nobodyEnds() {
		return "" // it was in its socket before
	}
	return b.has(e)
}

// has says why another trainer must not get a record that e's trainer has put into a shared model.
func (b *books) has(e *entry) string {
	q := e.t
	switch {
	case e.is == durable:
		return "was told that it is in the model, durably"
	case e.is == inHand && q.alive && !q.nobodyEnds():
		return "has it in hand"
	case e.is == inModel && e.said && !q.noFile && q.lost == 0:
		return "has stepped it, and neither its node was lost nor it was given up"
	case e.is == inModel && e.said && !q.noFile && q.untold != "":
		return "has stepped it, and was given up though " + q.untold + " could have reported the steps"
	case e.is == inModel && e.said && !q.noFile && q.silence < b.w.plan.lostAfter:
		return fmt.Sprintf("has stepped it, and was given up %v after its agent had last reported it, and not %v", span(q.silence), span(b.w.plan.lostAfter))
	case e.is == inModel && q.alive && !q.stopped && !q.fenced && !b.lostTouch(e):
		return "put it into the model and lives"
	}
	return ""
}

// nobodyEnds is the limit of guarantee 6. A process that is stopped as a whole, or was until a moment ago,
// ends itself only when it goes on. Its agent would end it, but the agent is dead, or stopped, or was
// continued only now. An agent that started later has not let the process in, and does not know it.
func (q *trainer) nobodyEnds() bool {
	if !q.stopped && q.w.now >= q.grace+20*millisecond {
		return false
	}
	a := q.agent
	return !a.alive || a.stopped || !q.welcomed || q.ending > 0 && q.ending == a.woke
}

// lostTouch reports whether e's agent died since e, or was without its master for a TTL.
func (b *books) lostTouch(e *entry) bool {
	a := e.t.agent
	return !a.alive || a.stopped || a.born > e.at || a.doubted >= e.at
}

// forget voids everything that any trainer has put into the model or was told. A trainer that lives may
// have records in hand: others may restore while it gets its first batch.
func (b *books) forget() {
	for r, all := range b.recs {
		b.recs[r] = slices.DeleteFunc(all, func(e entry) bool { return !e.t.alive || e.is != inHand })
	}
}

func (b *books) stepped(t *trainer, recs []int32) {
	for _, r := range recs {
		e := b.entry(t, r)
		e.is, e.at = inModel, b.w.now
	}
}

// said notes that step() has returned.
func (b *books) said(t *trainer, recs []int32) {
	for _, r := range recs {
		b.entry(t, r).said = true
	}
}

// givenUp notes that a master has heard nothing of a process for too long. incarnation 0: it gives up
// all earlier processes of the rank that it has not heard of since it started. To give up a process is
// wrong while an agent of its node has a session with this master.
func (b *books) givenUp(m *master, rank uint32, incarnation uint64) {
	w := b.w
	for _, t := range w.everybody {
		if t.rank != rank || t.lost > 0 || t.inc != incarnation && (incarnation != 0 || t.slot == nil || t.slot.cur == t) {
			continue
		}
		if _, heard := m.spoken[t]; heard && incarnation == 0 {
			continue
		}
		t.lost, t.silence = w.now, m.silence(t)
		if a := t.node.agent; w.plan.model == shared && !t.alive && a.speaksWith(m) && t.died < w.now-w.told() {
			if t.untold = a.name; t.unheard() {
				w.fail("%s is given up with steps that no agent has reported, and %s could have reported them", t.name, a.name)
			}
		}
	}
}

// told is the longest time that an agent needs to report what an ended process had stepped.
func (w *World) told() Time { return second + lookEvery + 10*w.plan.delay }

// speaksWith reports whether the session with m was good for long enough to report ended processes.
func (a *agent) speaksWith(m *master) bool {
	return a != nil && a.alive && !a.stopped && a.link != nil && a.with == m && a.core.SessionLeft(a.now()) > 0 && max(a.doubted, a.woke) < a.w.now-a.w.told()
}

// unheard reports whether t has ended and its step file has steps that it was not told to be durable.
func (t *trainer) unheard() bool {
	if t.alive || !slices.Contains(t.node.files, t) || t.generation == 0 || !t.opened {
		return false
	}
	return slices.ContainsFunc(t.streams, func(r *reader) bool { return r.stepped > r.acked })
}

func (b *books) acked(t *trainer, recs []int32) {
	for _, r := range recs {
		e := b.entry(t, r)
		e.is = durable
	}
}

// early says which earlier record waits while t gets r. It is for partitions that are read in order.
func (b *books) early(t *trainer, r int32) string {
	w := b.w
	total := int32(w.input.total)
	p := w.partOf(int(r % total))
	last := p.segs[len(p.segs)-1]
	n := int32(last.first + len(last.begins) - p.first)
	for pass := int32(0); pass <= r/total; pass++ {
		first := pass*total + int32(p.first)
		for q := first; q < first+n && q < r; q++ {
			if !b.had(t, q) && b.out[q] == 0 && !w.input.skipped(q) {
				return fmt.Sprintf("%s, which waits", w.input.where(q))
			}
		}
	}
	return ""
}

func (b *books) had(t *trainer, r int32) bool {
	if t.base != nil && t.base.times[r] > 0 || b.w.plan.model == shared && b.w.model.times[r] > 0 {
		return true
	}
	for i := range b.recs[r] {
		e := &b.recs[r][i]
		if e.t == t || e.is != inHand && (e.t.group == nil || e.t.group == t.group && e.t.generation == t.generation) {
			return true
		}
	}
	return false
}

func (w *World) partOf(i int) *part {
	for k := len(w.input.parts) - 1; k > 0; k-- {
		if w.input.parts[k].first <= i {
			return w.input.parts[k]
		}
	}
	return w.input.parts[0]
}

// inOrder reports whether the books can judge the order of r's partition.
func (w *World) inOrder(r int32) bool {
	if w.plan.model == private {
		return false // other streams go back for records that a lost rank had acked
	}
	return w.input.datasets[w.partOf(int(r)%w.input.total).dataset].opt.Strict && w.plan.exact == 0 // with bit_exact each batch is known beforehand
}

// close judges the end: every record must be in the model, once.
func (b *books) close() {
	w := b.w
	unlisted := w.master.unlisted()
	dropped := w.master.dropped()
	absent := func(r int) bool { return b.out[r] > 0 || dropped[r] || unlisted[r] && w.input.lost(int32(r)) }
	if w.plan.model == shared {
		for r, n := range w.model.times {
			if n == 0 && absent(r) {
				continue
			}
			if n == 0 {
				w.fail("%s is not in the model", w.input.where(int32(r)))
				return
			}
			w.repeats += int(n) - 1
		}
		return
	}
	models := w.models()
	var sum, want uint64
	count, records := 0, 0
	for _, m := range models {
		sum += m.sum
		count += m.count
	}
	for r := range w.records {
		n := 0
		for _, m := range models {
			n += int(m.times[r])
		}
		if n == 0 && absent(r) {
			continue
		}
		want += mix(int32(r))
		records++
		if n == 1 && b.out[r] > 0 {
			w.fail("%s is both in the model and excluded", w.input.where(int32(r)))
		}
		if n == 1 && dropped[r] {
			w.fail("%s is both in the model and dropped", w.input.where(int32(r)))
		}
		if n != 1 {
			w.fail("%s is in the model %d times", w.input.where(int32(r)), n)
			return
		}
	}
	if sum != want || count != records {
		w.fail("the model's sum is %x of %d records, not %x of %d", sum, count, want, records)
	}
}
