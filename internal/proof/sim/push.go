package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// Some live inputs are pushed: their segments come by transactions. A producer commits one after the other.
// It repeats a commit until it is answered, and sometimes once more. A commit or its answer may be lost,
// and the master may end in between. A commit is refused if its chunks were staged too long ago; they are
// staged again. Judged here: an answered commit is remembered, also by each later master, and the
// segments of each known transaction are there once. The rest is judged as for every input.

// stagedFor is landing.stage_ttl. Transactions are remembered for longer than any run.
const stagedFor = 5 * second

// push is a transaction: a segment in each partition of a dataset, or in some.
type push struct {
	w        *World
	dataset  int
	id       string
	at       Time // it does not begin before
	staged   Time
	parts    []*part
	segs     []*segment
	next     *push
	begun    bool
	answered bool
}

// bePushed makes the input a pushed one, if it is live and no master loses its disk: a landing would be lost
// with the disk.
func (w *World) bePushed(in *input) {
	loses := func(t Trouble) bool { return t.Name == diskLost }
	if !w.plan.live || w.plan.exact > 0 || w.story.Seed%3 != 1 || slices.ContainsFunc(w.plan.troubles, loses) {
		return
	}
	for d := range in.datasets {
		var before *push
		for k := 0; ; k++ {
			t := &push{w: w, dataset: d, id: fmt.Sprintf("d%d-%d", d+1, k)}
			for _, p := range in.parts {
				if p.dataset != d || k >= len(p.segs) {
					continue
				}
				s := p.segs[k]
				s.beChunk()
				t.parts, t.segs, t.at = append(t.parts, p), append(t.segs, s), max(t.at, s.listed)
			}
			if len(t.segs) == 0 {
				break
			}
			for _, s := range t.segs {
				s.listed = t.at
			}
			if before != nil {
				before.next = t
			}
			before = t
			w.pushes = append(w.pushes, t)
		}
	}
}

// beChunk makes a segment a chunk: it begins at 0, is never empty, and does not grow.
func (s *segment) beChunk() {
	from := s.start
	for i := range s.begins {
		s.begins[i], s.ends[i] = s.begins[i]-from, s.ends[i]-from
	}
	s.end = max(s.end-from, 1)
	s.start, s.low, s.opens, s.grows, s.rolls = 0, 0, 0, 0, false
}

// startPushing begins the first transaction of each dataset.
func (w *World) startPushing() {
	first := map[int]bool{}
	for _, t := range w.pushes {
		if !first[t.dataset] {
			first[t.dataset] = true
			w.at(t.at, t.say)
		}
	}
}

// say repeats the commit until it is answered.
func (t *push) say() {
	w := t.w
	if t.answered {
		return
	}
	if !t.begun {
		t.begun, t.staged = true, w.now
		if w.oneIn(4) { // the chunks are staged, and the producer waits for long
			w.at(w.now+w.time(0, 2*stagedFor), t.say)
			return
		}
	}
	t.send()
	w.at(w.now+w.time(100*millisecond, 3*second), t.say)
}

// send sends the commit once.
func (t *push) send() {
	w := t.w
	w.tracef("a producer", "commits %s", t.id)
	if !w.oneIn(4) {
		w.at(w.now+w.time(0, w.plan.delay), t.arrive)
	}
}

func (t *push) arrive() {
	w, m := t.w, t.w.master
	if m == nil {
		return
	}
	lost := w.oneIn(3)
	m.run(func() {
		m.take(func() {
			if !m.land(t) {
				return
			}
			m.cur.events++ // a repeated commit, too, is answered after all earlier events
			m.cur.calls = append(m.cur.calls, func() {
				if !lost {
					w.at(w.now+w.time(0, w.plan.delay), t.answer)
				}
			})
		})
	})
}

// land is the master's side of a commit. False: it is refused for now.
func (m *master) land(t *push) bool {
	w := m.w
	id := shardsvc.DatasetID(t.dataset + 1)
	ev := &shardsvc.Land{Dataset: id, Transaction: t.id, When: int64(w.now / millisecond), Staged: int64(t.staged / millisecond)}
	for i, p := range t.parts {
		no := m.number(id, p.identity)
		if no == 0 {
			return false // its partitions are not listed yet
		}
		ev.Parts = append(ev.Parts, shardsvc.LandPart{Partition: no, Segments: []sources.Segment{{End: t.segs[i].end, Name: t.id, Locator: []byte(t.id)}}})
		ev.Records += int64(len(t.segs[i].begins))
	}
	if _, known := m.core.Landed(id, t.id); !known && w.now-t.staged > stagedFor {
		w.tracef("a producer", "is refused: %s was staged long ago, and is staged again", t.id)
		t.staged = w.now
		return false
	}
	// A deposed master may have ended its partitions without this transaction.
	m.lenient = !m.w.disk.mine(m)
	m.step(ev)
	m.lenient = false
	return true
}

func (t *push) answer() {
	w := t.w
	if t.answered {
		return
	}
	w.tracef("a producer", "is answered: %s", t.id)
	t.answered = true
	if n := t.next; n != nil {
		w.at(max(w.now, n.at), n.say)
	}
	for range w.of(0, 2) {
		w.at(w.now+w.time(0, 3*stagedFor), t.send)
	}
}

// allPushed reports whether every transaction of a dataset is answered. Then a producer may say that no
// record follows.
func (w *World) allPushed(dataset int) bool {
	return !slices.ContainsFunc(w.pushes, func(t *push) bool { return t.dataset == dataset && !t.answered })
}

// checkPushed judges what the core knows of transactions.
func (m *master) checkPushed() {
	w := m.w
	there := map[*part]int{}
	for _, t := range w.pushes {
		_, known := m.core.Landed(shardsvc.DatasetID(t.dataset+1), t.id)
		if t.answered && !known {
			w.fail("the commit of %s was answered, and the master does not know it", t.id)
		}
		if known {
			for _, p := range t.parts {
				there[p]++
			}
		}
	}
	for _, p := range w.input.parts {
		no := m.number(shardsvc.DatasetID(p.dataset+1), p.identity)
		if no == 0 {
			continue
		}
		segs := m.core.Segments(no, -1, 0)
		at := 0 // how many of p.segs are listed
		for _, g := range segs {
			s, start := p.segs[g.ID], int64(0)
			for ; at < int(g.ID); at++ {
				start -= p.segs[at].end
			}
			at++
			if g.Start != start || g.End != s.end {
				w.fail("segment %d of %s is [%d, %d), and the pushed records are [%d, %d)", g.ID, p.identity, g.Start, g.End, start, s.end)
			}
			if len(g.Locator) == 0 && s.low < s.end {
				w.fail("segment %d of %s is trimmed, and its chunk is not deleted", g.ID, p.identity)
			}
		}
		if at != there[p] {
			w.fail("%s lists %d segments, and %d transactions with one of them are known", p.identity, at, there[p])
		}
	}
}
