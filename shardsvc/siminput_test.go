package shardsvc

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/oracle"
	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

// This file makes the input of a random world, and lets its listing grow.

func newSim(t *rapid.T, tb testing.TB) *sim {
	return newSimOf(t, tb, rapid.SampledFrom([]string{Shared, Replicated, Private}).Draw(t, "model"))
}

func newSimOf(t *rapid.T, tb testing.TB, model string) *sim {
	s := &sim{t: t, granted: map[Token]*simLease{}, cutSim: cutSim{untold: map[uint64]oracle.Set{}, manifests: map[uint64]*cut.Cut{}, bases: map[uint32]*simCut{}, carriedOnce: map[uint64]bool{}, memories: map[uint64]bool{}, bodies: map[uint64]*cut.Cut{}, removed: map[uint64]bool{}, captured: map[uint64]oracle.Set{}}, newest: map[uint32]uint64{}, model: model}
	s.w = &world{t: tb, cfg: Config{Job: "j", Model: s.model, SessionTTL: simTTL, History: 3}, now: 1000 * Second, store: map[string][]byte{}}
	s.w.restart0(t)
	commit(s.w.store, s.w.fx.Puts)
	s.opt = Options{Passes: rapid.IntRange(1, 3).Draw(t, "passes"), Initial: 7, Min: rapid.Int64Range(1, 6).Draw(t, "min"), Max: 40, Target: 2 * Second, Stall: 60 * Second, GoOnAfterLoss: true}
	s.sizes, s.lost = map[[2]int64][2]int64{}, map[[2]int64]int64{}
	s.live, s.heads = rapid.IntRange(0, 2).Draw(t, "live") == 0, map[uint32]int64{}
	switch order := rapid.IntRange(0, 3).Draw(t, "order"); {
	case order == 0:
		s.opt.Strict = true
	case order == 2 && !s.live:
		s.beVirtual()
	case order == 1 && !s.live:
		s.opt.Shuffle, s.opt.Block, s.opt.Seed = true, rapid.Int64Range(1, 9).Draw(t, "block"), rapid.Uint64().Draw(t, "seed")
	}
	s.book = oracle.New(uint32(s.opt.Passes))
	s.apply()
	for i := range 2 {
		s.nextInc++
		a := &simAgent{name: fmt.Sprint("a", i), inc: s.nextInc}
		s.agents = append(s.agents, a)
		s.connect(a)
	}
	return s
}

func (s *sim) apply() {
	s.step(&ApplyDataset{ID: 1, Name: "d", Options: s.opt}, false)
	for n := range uint32(2) {
		s.step(&AddPartition{Dataset: 1, Number: n + 1, Identity: s.identity(n)}, false)
	}
	s.step(&PartitionsListed{Dataset: 1}, false)
}

// applyAgain gives an empty master the same input, as discovery does. A restored cut may have
// made the partitions before.
func (s *sim) applyAgain() {
	s.apply()
	for part := uint32(1); part <= 2; part++ {
		ev := &AddSegments{Partition: part, Complete: s.complete}
		for id := range s.segments {
			b := s.sizes[[2]int64{int64(s.src(part)), id}]
			ev.Segments = append(ev.Segments, sources.Segment{ID: id, Start: b[0], End: b[1], Sealed: true})
		}
		s.step(ev, false)
	}
}

// list adds a segment to both partitions.
func (s *sim) list(complete bool) {
	if s.complete {
		return
	}
	if s.live {
		s.grow(complete)
		return
	}
	s.complete = complete
	id := s.segments
	s.segments++
	for part := range uint32(2) {
		key := [2]int64{int64(s.src(part + 1)), id}
		if _, listed := s.sizes[key]; !listed {
			start := rapid.Int64Range(0, 50).Draw(s.t, "start")
			end := start + rapid.Int64Range(0, 60).Draw(s.t, "size")
			s.book.List(oracle.Range{Partition: uint32(key[0]), Segment: id, Start: start, End: end})
			s.sizes[key] = [2]int64{start, end}
		}
		s.step(&AddSegments{Partition: part + 1, Complete: complete,
			Segments: []sources.Segment{{ID: id, Start: s.sizes[key][0], End: s.sizes[key][1], Sealed: true}}}, false)
	}
}

// grow adds records. The master or an agent tells the core of them, or nobody does. At the end
// of the run, the segments are sealed at their heads.
func (s *sim) grow(complete bool) {
	first := s.segments == 0
	complete = complete && s.calm
	s.segments, s.complete = 1, complete
	for part := uint32(1); part <= 2; part++ {
		if first {
			start := rapid.Int64Range(0, 50).Draw(s.t, "start")
			s.heads[part] = start + rapid.Int64Range(0, 20).Draw(s.t, "size")
			s.book.List(oracle.Range{Partition: part, Start: start, End: s.heads[part]})
			s.sizes[[2]int64{int64(part), 0}] = [2]int64{start, start}
			s.step(&AddSegments{Partition: part, Segments: []sources.Segment{{Start: start, End: s.heads[part]}}}, false)
		}
		s.heads[part] += rapid.Int64Range(0, 40).Draw(s.t, "more")
		s.book.Grow(part, 0, s.heads[part])
		s.tellHead(part, complete)
	}
}

func (s *sim) tellHead(part uint32, complete bool) {
	h := Head{Partition: part, End: s.heads[part]}
	switch who := rapid.IntRange(0, 3).Draw(s.t, "told by"); {
	case who == 1 && !complete:
		h.End = rapid.Int64Range(0, h.End).Draw(s.t, "late")
		fallthrough
	case complete || who == 0:
		s.step(&Heads{[]Head{h}}, false)
	case who == 2:
		s.send(s.someAgent(), &Message{Heads: []Head{h}})
	}
	switch {
	case complete && rapid.Bool().Draw(s.t, "by head"):
		h.Sealed = true
		s.step(&Heads{[]Head{h}}, false)
		fallthrough
	case complete:
		s.step(&AddSegments{Partition: part, Complete: true}, false)
	}
}
