package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// Some live inputs are in a live source (memsource): a log whose segments grow, roll over, are sealed and
// are trimmed. Masters and agents use it through the interfaces of package sources, as in the product:
// the master lists segments and heads, says what to keep, and learns where segments begin; agents open
// segments and read. This file has the producers and the broker. Judged here: what is read is what was
// produced, and a sealed segment is known to its end before the next one is known. The rest is judged as
// for every input.

// inputLog is the log of a dataset.
type inputLog struct {
	w      *World
	log    *memsource.Log
	agents *memsource.Source // agents read through it
	parts  []*part
	away   bool // it does not answer
}

// errAway is the answer of a log that is away.
var errAway = &sources.Temporary{Err: errors.New("the log is away"), Away: true}

// beLogged puts datasets of a live input into logs. It has dice of its own, so that the seed's other draws
// do not change. Shuffled datasets are left out, because their whole input must be listed first. So are
// seeds in which a master loses its disk: the next master would list only what is not trimmed, so the
// beginning would differ.
func (w *World) beLogged(in *input) {
	loses := func(t Trouble) bool { return t.Name == diskLost }
	if !w.plan.live || w.plan.exact > 0 || len(w.pushes) > 0 || slices.ContainsFunc(w.plan.troubles, loses) {
		return
	}
	dice := rand.New(rand.NewPCG(w.story.Seed, 0x106))
	for d := range in.datasets {
		if in.datasets[d].opt.Shuffle || dice.IntN(4) == 0 {
			continue
		}
		l := &inputLog{w: w}
		for _, p := range in.parts {
			if p.dataset == d && !p.history {
				l.parts = append(l.parts, p)
			}
		}
		l.log = memsource.New(in.datasets[d].name, len(l.parts), memsource.Numbers{Step: lives + 1}) // so that place() finds them
		l.agents = l.log.Open(true, nil)
		ids, err := l.agents.Partitions(context.Background())
		if err != nil {
			panic(err)
		}
		for i, p := range l.parts {
			p.log, p.number, p.identity = l, i, string(ids[i])
			p.beLogged()
		}
		w.logs = append(w.logs, l)
	}
	for d := range in.datasets {
		if len(w.logs) > 0 {
			in.datasets[d].opt.Passes = 1 // trimmed records cannot be read again
		}
	}
}

// beLogged makes each segment grow until the next one begins.
func (p *part) beLogged() {
	for i, s := range p.segs {
		for k := range s.begins {
			s.begins[k], s.ends[k] = int64(k)*memsource.Stride, int64(k+1)*memsource.Stride
		}
		s.start, s.low, s.opens, s.end = 0, 0, 0, int64(len(s.begins))*memsource.Stride
		s.logged, s.rolls, s.grows = true, i+1 < len(p.segs), p.complete
		if s.rolls {
			s.grows = p.segs[i+1].listed
		}
		if s.grows = max(s.grows, s.listed+1); s.rolls {
			p.segs[i+1].listed = s.grows
		}
	}
	p.complete = max(p.complete, p.segs[len(p.segs)-1].grows)
}

// startLogs plans the work of producers and brokers.
func (w *World) startLogs() {
	for _, l := range w.logs {
		for _, p := range l.parts {
			for i, s := range p.segs {
				if i > 0 {
					w.at(s.listed, func() { l.roll(p, i) })
				}
				for k := range s.begins {
					w.at(s.born(k), func() { l.produce(p, s, k) })
				}
			}
			last := p.segs[len(p.segs)-1]
			w.at(last.grows, func() { last.over = true })
		}
		w.at(w.now, l.clean)
		for range 2 {
			if at := w.time(0, 2*w.plan.trouble); at < w.plan.trouble {
				w.at(at, l.beAway)
			}
		}
	}
}

// produce appends record k of s. Its value is its number, or no number if it is bad.
func (l *inputLog) produce(p *part, s *segment, k int) {
	value := binary.BigEndian.AppendUint32(nil, uint32(s.first+k))
	if s.bad[k] {
		value = []byte("x")
	}
	l.log.Append(p.number, value)
	s.came++
}

// roll seals the segment before segment i, and begins segment i.
func (l *inputLog) roll(p *part, i int) {
	l.w.tracef("source", "%s rolls over to segment %d", p.identity, i)
	l.log.Roll(p.number)
	p.segs[i-1].over = true
}

// clean trims from time to time what is not needed any more.
func (l *inputLog) clean() {
	for _, p := range l.parts {
		if l.log.Begun(sources.PartitionID(p.identity)) {
			l.w.seen.trimmed += l.log.Trim(p.number, 1)
			l.trimmed(p)
		}
	}
	l.w.at(l.w.now+l.w.time(100*millisecond, 3*second), l.clean)
}

// lose trims the oldest sealed segments of the log, even if they are needed. Segments that no master has
// listed yet stay: a log keeps them from the moment it knows of a reader, and if they were lost, nothing
// would say which records are missing.
func (l *inputLog) lose(p *part) {
	w := l.w
	most := 0
	for _, s := range p.segs {
		if s.known && s.over && s.rolls && s.low < s.end {
			most++
		}
	}
	if most == 0 {
		return
	}
	n := w.of(1, most)
	w.seen.pulled, p.back = w.seen.pulled+n, true
	l.log.Lose(p.number, n)
	l.trimmed(p)
}

// trimmedBefore is where the logs of a dataset begin now, if they have deleted only what was not needed.
func (w *World) trimmedBefore(dataset int) (marks []shardsvc.MarkInfo) {
	for _, l := range w.logs {
		for _, p := range l.parts {
			if p.dataset != dataset || p.back || l.away {
				continue
			}
			all, err := l.agents.Bounds(context.Background(), []sources.PartitionID{sources.PartitionID(p.identity)})
			if err != nil {
				panic(err)
			}
			marks = append(marks, shardsvc.MarkInfo{Identity: p.identity, Segment: all[0].Low.Segment, Offset: all[0].Low.Offset})
		}
	}
	return marks
}

// trimmed notes the records that are not there any more.
func (l *inputLog) trimmed(p *part) {
	_, gone := l.log.Segments(p.number)
	for _, s := range p.segs[:gone] {
		l.w.deleteBelow(p, s, s.end)
	}
}

// beAway makes the log not answer for some time.
func (l *inputLog) beAway() {
	w := l.w
	if l.away || w.calm > 0 {
		return
	}
	w.seen.outages++
	w.tracef("source", "the log of %s answers nobody", l.parts[0].identity)
	l.away = true
	l.log.Fail(errAway)
	w.at(w.now+w.time(50*millisecond, 3*second), func() {
		w.tracef("source", "the log of %s answers again", l.parts[0].identity)
		l.away = false
		l.log.Fail(nil)
	})
}
