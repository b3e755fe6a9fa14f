package sim

import (
	"math/rand/v2"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Records that crash their trainer (on_crash: isolate). A trainer ends when it has computed a batch with
// such a "deadly" record. The process that started it tells its agent of the crash. Other trainers on
// the node may abort because of it, which looks the same. The books know that every deadly record must
// be excluded, and no other.

// aloneWait is how long a record that comes alone waits until earlier batches are stepped.
const aloneWait = second

// drawCrashes decides whether a seed has deadly records. It uses no dice, so that the seed's other draws
// do not change.
func (p *plan) drawCrashes(seed uint64) {
	ordered := p.model == shared || seed%4 != 2   // the other seeds test processes that join out of order
	alternates := p.rounds && len(p.datasets) > 1 // docs/BAD-RECORDS.md, Limits
	if p.isolates = seed%5 == 4 && ordered && p.exact == 0 && !p.drops && !alternates; !p.isolates {
		return
	}
	p.aborts = seed%2 == 0
	for i := range p.datasets {
		p.datasets[i].opt.Isolate = true
	}
}

// beDeadly makes a few records deadly: each one ends trainers three times.
func (w *World) beDeadly(in *input) {
	if !w.plan.isolates {
		return
	}
	r := rand.New(rand.NewPCG(w.story.Seed, 0xdead))
	for range 1 + r.IntN(3) {
		i := r.IntN(max(in.total, 1))
		if i < in.total && !in.spoilt(int32(i)) {
			in.deadly = append(in.deadly, int32(i))
		}
	}
}

// kills reports whether a record crashes its trainer.
func (in *input) kills(rec int32) bool { return slices.Contains(in.deadly, rec%int32(in.total)) }

// crashes ends the trainer if one of the next k batches of r has a deadly record.
func (t *trainer) crashes(r *reader, k uint32) bool {
	if !t.w.plan.isolates {
		return false
	}
	for n := r.stepped + 1; n <= r.stepped+k; n++ {
		if slices.ContainsFunc(r.batch(n).recs, t.w.input.kills) {
			t.crashed = true
			t.w.seen.deaths++
			t.kill("a record crashes it")
			t.abortOthers()
			return true
		}
	}
	return false
}

// abortOthers aborts the other trainers of its node, as in a collective that a member has left.
func (t *trainer) abortOthers() {
	w := t.w
	if !w.plan.aborts {
		return
	}
	for _, o := range w.trainers {
		if o.node == t.node && o.alive {
			w.at(w.now+w.time(5*millisecond, 100*millisecond), func() {
				if o.alive && !o.stopped && !o.finished {
					o.crashed = true
					o.kill("it aborts, as another one is gone")
				}
			})
		}
	}
}

// alone reports whether the records of the lease come one by one.
func (l *reading) alone() bool { return l.grant.Suspicion == pb.Grant_SINGLY }

// mayLeave reports whether a batch may leave for the trainer now. A record that comes alone waits until
// everything before it is stepped. Everything after it waits until it is stepped.
func (f *feed) mayLeave(alone bool) bool {
	s := f.s
	if s.unstepped == 0 && s.onWay == 0 || !alone && !s.single && s.singlesOnWay == 0 {
		return true
	}
	now := s.a.w.now
	if f.since == 0 {
		f.since = now
		s.a.after(aloneWait, f.poke)
	}
	return now >= f.since+aloneWait
}

// goes counts n frames that may leave and have not left.
func (s *seat) goes(alone bool, n int) {
	if s.onWay += n; alone {
		s.singlesOnWay += n
	}
}

// leftFor notes that n batches have left for the trainer.
func (s *seat) leftFor(n int, alone bool) {
	s.unstepped += n
	s.single = s.single || alone
}

// steppedTo notes a step.
func (s *seat) steppedTo(f *feed, through uint32) {
	if through <= f.stepped {
		return
	}
	s.unstepped -= min(s.unstepped, int(through-f.stepped))
	f.stepped = through
	if s.unstepped == 0 && s.single {
		s.single = false
		for _, o := range s.streams {
			o.poke()
		}
	}
}

// crashReason is the reason that an agent gives when it reports a record as bad.
const crashReason = "its trainer died twice while it alone was in the batch"
