package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Verdict is what the journals say, without asking the ledger.
type Verdict struct {
	Lost          int      `json:"lost"`              // records that are in no model
	Twice         int      `json:"twice"`             // records that are in it twice without a reason
	Repeats       int      `json:"repeats,omitempty"` // of a consumer group: applications beyond a record's first
	SharedRepeats int      `json:"shared_repeats"`    // records repeated because a trainer ended with them in hand
	OfThemStepped int      `json:"of_them_stepped"`   // stepped, by a trainer that the master was right to give up
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

// told is how long an agent and a master that run may take until the master knows what
// the processes of the agent's node have stepped: as long as both have to start on a
// machine that is busy with other things.
const told = 4 * time.Second

// judge compares lives with the truth.
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

// judgeGroup counts what a consumer group did. It promises nothing, so nothing is
// wrong but records that were never produced.
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
					v.say("%v was given and does not exist", k)
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

// sure: the step is durable beyond doubt. A stream that steps by itself has not stepped
// its last batch when its process leaves before the next one.
func (a application) sure() bool {
	return a.b.durableWhenLastStepped || a.l.done && a.b.stepped != 0
}

// span is one life of a shared model: of its server, or of the whole run.
type span struct {
	server int
	base   []uint8      // how often each record was in the model when it began; nil: not once
	cut    map[key]bool // what the checkpoint that it began with says
	over   bool         // its server was killed: what it had is lost
}

// judgeShared: the model outlives trainers, so every application counts that was made
// to it.
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
				v.say("%v is never applied", k)
			}
			return
		}
		if s.cut[k] {
			v.Twice++
			v.say("%v is in the checkpoint that the model began with, and applied again", k)
			return
		}
		if why := x.repeated(got); why != "" {
			v.Twice++
			v.say("%v is applied %d times: %s", k, len(got), why)
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
		v.say("%v was given and does not exist", k)
	}
}

// excuses are what a record may be applied again for.
type excuses struct {
	disturbed []disturbance
	lostAfter time.Duration // for how long nobody must have spoken for a process that is given up
}

// repeated says why a record may not have been applied so often; "": it may.
//
// Between two applications, the first trainer must have ended before its step() had
// returned. Or the master had given it up, and was right to.
func (x excuses) repeated(got []application) string {
	if len(got) < 2 {
		return ""
	}
	// In the order in which they were given it. Who was frozen may have applied it behind
	// another, when its session had ended: nobody could end it before it went on.
	slices.SortFunc(got, func(a, b application) int { return int(a.b.yielded - b.b.yielded) })
	last := got[len(got)-1]
	for i, a := range got[:len(got)-1] {
		next := got[i+1]
		ran := last.l != a.l && last.b.applied < a.l.ended                               // it still ran when another had applied it
		late := last.l != a.l && last.b.applied < a.b.applied && a.b.applied < a.l.ended // and not only the server was late
		switch {
		case a.sure():
			return fmt.Sprintf("batch %d/%d of %v was durable, and then batch %d/%d of %v", a.b.stream, a.b.number, a.l, last.b.stream, last.b.number, last.l)
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

// givenUp says why the master may not have given up l before a time; "": it may. Where the
// master and l's agent ran for long enough, the master has heard of l, which lived, or
// whose step file was there. Such a time must not lie in the lostAfter before the end.
func (x excuses) givenUp(l *life, before int64) string {
	why := "nobody had given up that rank"
	for _, at := range l.givenUp {
		if at >= before {
			continue
		}
		from := at - int64(x.lostAfter)
		if len(l.batches) > 0 {
			from = max(from, l.batches[0].yielded) // by then it was let in
		}
		all := x.quiet(l, from, at)
		if all < told {
			return ""
		}
		why = fmt.Sprintf("that rank was given up, although in the %v before that its agent and the master ran for %v", x.lostAfter, all)
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

// frozenBefore: l was stopped for a while that began before a time.
func (l *life) frozenBefore(at int64) bool {
	return slices.ContainsFunc(l.stood, func(d disturbance) bool { return d.from < at })
}

// judgeLast: without cuts a new process begins anew, so what is in the models at
// the end is what each rank's last life has stepped.
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
			v.say("%v is the last of its rank and has not ended well", l)
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
		v.say("%v was given and does not exist", k)
	}
}

// gaveBackDuring: what o had came again to others while l ran: when its next process
// joined, or when it was settled what of it is in its checkpoints, at its death.
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

// judgeOrder: with `order: strict` a stream gets what follows, and nothing is
// yielded to anybody before all that precedes it was. What a private rank had
// comes again when its next process joins, and others go back for it.
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
						v.say("strict: %v gets %v after %v", l, k, last)
					}
					lastOf[b.stream] = k
				}
			}
		}
		slices.SortFunc(all, func(a, b seen) int { return int(a.b.yielded - b.b.yielded) })
		reached := make([]int, in.passes) // per pass: all ids below were yielded
		for _, s := range all {
			for _, k := range s.b.keys {
				if k.id() > reached[k.pass()] {
					v.say("strict: %v gets %v while %d was not given yet", s.l, k, reached[k.pass()])
					reached[k.pass()] = k.id()
				}
				reached[k.pass()] = max(reached[k.pass()], k.id()+1)
			}
		}
	}
}
