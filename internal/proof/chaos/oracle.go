package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Verdict is the judgement from the journals alone, without asking the ledger.
type Verdict struct {
	Lost          int      `json:"lost"`              // records that are in no model
	Twice         int      `json:"twice"`             // records that are in a model twice without a reason
	Repeats       int      `json:"repeats,omitempty"` // of a consumer group: how often records were applied after their first time
	SharedRepeats int      `json:"shared_repeats"`    // records repeated because a trainer ended before their step was durable
	OfThemStepped int      `json:"of_them_stepped"`   // of these: records that were stepped, by a trainer that the master gave up rightly
	Dropped       int      `json:"dropped,omitempty"` // records that no full round had (tail="drop"): they are in no model, and rightly so
	Wrong         []string `json:"wrong,omitempty"`
}

const maxWrong = 12

func (v *Verdict) say(format string, args ...any) {
	if len(v.Wrong) < maxWrong {
		v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
	}
}

// disturbance is a time in which a process did not run: it was dead, or stopped.
type disturbance struct {
	from, to int64
	agent    int // -1: the master
}

// told is how long an agent and a master that run may take until the master knows what the processes of
// that node have stepped. Both may have to start on a busy machine.
const told = 4 * time.Second

// judge compares what the trainers did with the truth.
func judge(model string, inputs []*input, lives []*life, x excuses) Verdict {
	var v Verdict
	for _, l := range lives {
		if l.bad {
			v.say("%s got records whose values are not theirs", l)
		}
	}
	if model == "shared" {
		v.judgeShared(inputs, lives, []span{{}}, x)
	} else {
		v.judgeLast(inputs, lives)
	}
	v.judgeOrder(model, inputs, lives)
	return v
}

// judgeGroup counts what a consumer group did. It promises nothing, so only records that were never
// produced are wrong.
func judgeGroup(in *input, lives []*life) (v Verdict) {
	applied := make([]int, in.records)
	for _, l := range lives {
		if l.bad {
			v.say("%s got records whose values are not theirs", l)
		}
		for _, b := range l.batches {
			for _, k := range b.keys {
				switch {
				case k < 0 || int64(k) >= int64(in.records):
					v.say("%v was given to a trainer and does not exist", k)
				case b.applied != 0:
					applied[k]++
				}
			}
		}
	}
	for _, n := range applied {
		switch {
		case n == 0:
			v.Lost++
		case n > 1:
			v.Twice++
			v.Repeats += n - 1
		}
	}
	return v
}

type application struct {
	l *life
	b *batch
}

// sure reports whether the step is certainly durable. A stream with ack="auto" has not stepped its last
// batch if its process leaves before it takes another.
func (a application) sure() bool {
	return a.b.durableWhenLastStepped || a.l.done && a.b.stepped != 0
}

// span is one life of a shared model: of its server, or the whole run.
type span struct {
	server int
	base   []uint8      // how often each record was in the model at the beginning; nil: never
	cut    map[key]bool // the cut of the checkpoint with which it began
	over   bool         // its server was killed: this model is lost
}

// judgeShared: a shared model outlives its trainers, so every application to it counts.
func (v *Verdict) judgeShared(inputs []*input, lives []*life, spans []span, x excuses) {
	for _, s := range spans {
		v.judgeSpan(inputs, lives, s, x)
	}
}

func (v *Verdict) judgeSpan(inputs []*input, lives []*life, s span, x excuses) {
	all := map[key][]application{}
	for _, l := range lives {
		for _, b := range l.batches {
			if b.applied == 0 || b.server != s.server {
				continue
			}
			for _, k := range b.keys {
				all[k] = append(all[k], application{l, b})
			}
		}
	}
	i := -1
	each(inputs, func(k key) {
		i++
		got, before := all[k], 0
		if s.base != nil {
			before = int(s.base[i])
		}
		delete(all, k)
		if len(got) == 0 {
			if before == 0 && !s.over {
				v.Lost++
				v.say("%v was never applied", k)
			}
			return
		}
		if s.cut[k] {
			v.Twice++
			v.say("%v is in the checkpoint with which the model began, and was applied again", k)
			return
		}
		if why := x.repeated(got); why != "" {
			v.Twice++
			v.say("%v was applied %d times: %s", k, len(got), why)
			return
		}
		v.SharedRepeats += len(got) - 1
		for _, a := range got[:len(got)-1] {
			if a.b.stepped != 0 {
				v.OfThemStepped++
			}
		}
	})
	for k := range all {
		v.say("%v was given to a trainer and does not exist", k)
	}
}

// excuses are the reasons for which a record may be applied again.
type excuses struct {
	disturbed []disturbance
	lostAfter time.Duration // a process may be given up if no agent has reported it for so long
}

// repeated says why a record must not have been applied so often. "": there was a reason.
//
// Between two applications, the first trainer must have ended before its step() returned, or the
// master must have given it up, rightly.
func (x excuses) repeated(got []application) string {
	if len(got) < 2 {
		return ""
	}
	// Sorted by the time at which each was given the record. A frozen trainer may have applied it after
	// another one did, when its own session had ended: nothing could end it before it went on.
	slices.SortFunc(got, func(a, b application) int { return int(a.b.yielded - b.b.yielded) })
	last := got[len(got)-1]
	for i, a := range got[:len(got)-1] {
		next := got[i+1]
		ran := last.l != a.l && last.b.applied < a.l.ended                               // its process still ran when another trainer had applied the record
		late := last.l != a.l && last.b.applied < a.b.applied && a.b.applied < a.l.ended // its process applied the record later than another did, so the server alone was not late
		switch {
		case a.sure():
			return fmt.Sprintf("batch %d/%d of %v was durable, and the record came again in batch %d/%d of %v", a.b.stream, a.b.number, a.l, last.b.stream, last.b.number, last.l)
		case a.l.ended == 0:
			return fmt.Sprintf("%v has not ended", a.l)
		case (ran || late) && !a.l.frozenBefore(next.b.yielded):
			return fmt.Sprintf("it was in the hands of %v, which still ran for %v", a.l, time.Duration(a.l.ended-last.b.applied))
		case a.b.stepped != 0 || ran || late:
			if why := x.givenUp(a.l, next.b.yielded); why != "" {
				return fmt.Sprintf("batch %d/%d of %v was %s, and %v got it: %s", a.b.stream, a.b.number, a.l, a.state(), next.l, why)
			}
		}
	}
	return ""
}

func (a application) state() string {
	if a.b.stepped != 0 {
		return "stepped"
	}
	return "in its hands"
}

// givenUp says why the master was wrong to give up l before a time. "": it was right, or had no
// chance to know better. While the master and l's agent both run for `told`, the master hears of l,
// or of its step file. There must be no such time in the lostAfter before it gave l up.
func (x excuses) givenUp(l *life, before int64) string {
	why := "the master had not given up that rank"
	for _, at := range l.givenUp {
		if at >= before {
			continue
		}
		from := at - int64(x.lostAfter)
		if len(l.batches) > 0 {
			from = max(from, l.batches[0].yielded) // by its first batch it was let in
		}
		all := x.quiet(l, from, at)
		if all < told {
			return ""
		}
		why = fmt.Sprintf("the master gave up that rank, although in the %v before, its agent and the master ran for %v together", x.lostAfter, all)
	}
	return why
}

// quiet is the longest time in which l was not stopped, and its agent and the master ran.
func (x excuses) quiet(l *life, from, to int64) time.Duration {
	var spans []disturbance
	for _, d := range slices.Concat(x.disturbed, l.stood) {
		if (d.agent < 0 || d.agent == l.agent) && d.from < to && d.to > from {
			spans = append(spans, d)
		}
	}
	slices.SortFunc(spans, func(a, b disturbance) int { return int(a.from - b.from) })
	longest, reached := int64(0), from
	for _, d := range append(spans, disturbance{from: to, to: to}) {
		longest = max(longest, d.from-reached)
		reached = max(reached, d.to)
	}
	return time.Duration(longest)
}

// frozenBefore reports whether l was frozen at a time before `at`.
func (l *life) frozenBefore(at int64) bool {
	return slices.ContainsFunc(l.stood, func(d disturbance) bool { return d.from < at })
}

// judgeLast: without checkpoints a new process starts over. So the models at the end hold what each
// rank's last process has stepped.
func (v *Verdict) judgeLast(inputs []*input, lives []*life) {
	last := map[int]*life{}
	for _, l := range lives {
		if last[l.rank] == nil || last[l.rank].no < l.no {
			last[l.rank] = l
		}
	}
	all := map[key]int{}
	for _, l := range last {
		if !l.done {
			v.say("%v is the last process of its rank and has not ended well", l)
		}
		for _, b := range l.batches {
			if b.applied == 0 {
				continue
			}
			for _, k := range b.keys {
				all[k]++
			}
		}
	}
	each(inputs, func(k key) {
		switch n := all[k]; {
		case n == 0:
			v.Lost++
			v.say("%v is in no model", k)
		case n > 1:
			v.Twice++
			v.say("%v is in the models %d times", k, n)
		}
		delete(all, k)
	})
	for k := range all {
		v.say("%v was given to a trainer and does not exist", k)
	}
}

// gaveBackDuring reports whether records of o became pending again while l ran. That happens when o's
// next process joins, and when o dies and its checkpoints decide which of its records are in a model.
func gaveBackDuring(o, l *life) bool {
	return o.no > 1 && o.began > l.began || o.frozen || !o.done && o.ended > l.began
}

func each(inputs []*input, f func(key)) {
	for d, in := range inputs {
		for pass := range in.passes {
			for id := range in.records {
				f(key(id) | key(pass)<<40 | key(d)<<56)
			}
		}
	}
}

// judgeOrder: with `order: strict` a stream gets records in order, and no record is yielded to anybody
// before all records that precede it. Exception: the records of a lost private rank come again, and
// other ranks go back for them.
func (v *Verdict) judgeOrder(model string, inputs []*input, lives []*life) {
	type seen struct {
		l *life
		b *batch
	}
	for d, in := range inputs {
		if !in.strict {
			continue
		}
		var all []seen
		for _, l := range lives {
			mayGoBack := model == "private" && slices.ContainsFunc(lives, func(o *life) bool { return o.rank != l.rank && gaveBackDuring(o, l) })
			lastOf := map[int]key{}
			for _, b := range l.batches {
				if len(b.keys) == 0 || b.keys[0].dataset() != d {
					continue
				}
				all = append(all, seen{l, b})
				for _, k := range b.keys {
					if last, ok := lastOf[b.stream]; ok && k <= last && !mayGoBack {
						v.say("strict: %v got %v after %v", l, k, last)
					}
					lastOf[b.stream] = k
				}
			}
		}
		slices.SortFunc(all, func(a, b seen) int { return int(a.b.yielded - b.b.yielded) })
		reached := make([]int, in.passes) // by pass: all smaller ids were yielded
		for _, s := range all {
			for _, k := range s.b.keys {
				if k.id() > reached[k.pass()] {
					v.say("strict: %v got %v before record %d was given to anybody", s.l, k, reached[k.pass()])
					reached[k.pass()] = k.id()
				}
				reached[k.pass()] = max(reached[k.pass()], k.id()+1)
			}
		}
	}
}
