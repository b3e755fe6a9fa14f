package shardsvc

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

// bit_exact in the simulation: the two partitions are two virtual ranks of one partition of
// the source.

func (s *sim) beVirtual() {
	s.opt.Strict, s.opt.Shuffle, s.opt.VirtualRanks = true, true, 2
	s.opt.Block, s.opt.InOrder = rapid.Int64Range(1, 9).Draw(s.t, "block"), rapid.Bool().Draw(s.t, "blocks in order")
	if !s.opt.InOrder {
		s.opt.Seed = rapid.Uint64().Draw(s.t, "seed")
	}
	s.virtualOf = map[uint64]uint32{}
}

// src is the partition of the source that a partition of the core reads.
func (s *sim) src(part uint32) uint32 {
	if s.opt.VirtualRanks > 0 {
		return 1
	}
	return part
}

func (s *sim) identity(n uint32) string {
	if s.opt.VirtualRanks > 0 {
		return cut.VirtualIdentity("p", int(n), 2)
	}
	return fmt.Sprint("p", n+1)
}

func (s *sim) someVirtual() uint32 {
	if s.opt.VirtualRanks == 0 {
		return 0
	}
	v := rapid.Uint32Range(1, 2).Draw(s.t, "virtual")
	s.virtualOf[s.nextReq] = v
	return v
}

// reader returns the virtual rank that reads a unit, from 1, by the definition: block i of
// the order belongs to virtual rank i mod V.
func (s *sim) reader(pass uint32, segment, offset int64) uint32 {
	blocks, block := int64(0), int64(-1)
	for id := range s.segments {
		b := s.sizes[[2]int64{1, id}]
		if id == segment {
			block = blocks + (offset-b[0])/s.opt.Block
		}
		blocks += (b[1] - b[0] + s.opt.Block - 1) / s.opt.Block
	}
	at := uint64(block)
	if !s.opt.InOrder {
		at = line.NewPermutation(uint64(blocks), s.opt.Seed, pass).Place(uint64(block))
	}
	return uint32(at%uint64(s.opt.VirtualRanks)) + 1
}

// ofItsVirtualRank checks that a request is granted only records of its virtual rank.
func (s *sim) ofItsVirtualRank(request uint64, l *simLease) {
	if s.opt.VirtualRanks == 0 {
		return
	}
	v := s.virtualOf[request]
	if int64(v) != int64(l.part) {
		s.t.Fatalf("a request of virtual rank %d got a lease of partition %d", v, l.part)
	}
	for _, r := range s.ranges(l, l.start, l.end) {
		for at := r.Start; at < r.End; at++ {
			if of := s.reader(r.Pass, r.Segment, at); of != v {
				s.t.Fatalf("virtual rank %d got unit %d of segment %d in pass %d, which is virtual rank %d's", v, at, r.Segment, r.Pass, of)
			}
		}
	}
}

// endTold checks that END comes only when everything is settled. A virtual rank gets END when
// everything that it reads is settled.
func (s *sim) endTold(request uint64) {
	if s.opt.VirtualRanks == 0 {
		s.fail(s.book.Done())
		s.ended = true
		return
	}
	s.fail(s.book.DoneOf(func(pass uint32, segment, offset int64) bool {
		return s.reader(pass, segment, offset) == s.virtualOf[request]
	}))
	s.ended = s.book.Done() == nil
}

// Whatever V is, each block of the input is dealt out to one virtual rank, in the order of
// the pass.
func TestEveryBlockIsOneVirtualRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint32Range(1, 9).Draw(t, "virtual ranks")
		opt := Options{Shuffle: true, Strict: true, VirtualRanks: n, Block: rapid.Int64Range(1, 7).Draw(t, "block"),
			InOrder: rapid.Bool().Draw(t, "in order"), Seed: rapid.Uint64().Draw(t, "seed")}
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 40), 1, 5).Draw(t, "sizes")
		pass := rapid.Uint32Range(0, 3).Draw(t, "pass")
		seen, blocks, units, all := map[int64]bool{}, int64(0), int64(0), int64(0)
		for v := range n {
			ds := &dataset{opt: opt}
			p := &partition{ds: ds, Table: ds.noSegments()}
			p.Complete = true
			if err := p.named(cut.VirtualIdentity("files:a#b", int(v), int(n))); err != nil {
				t.Fatal(err)
			}
			if p.source != "files:a#b" || p.virtual != v+1 {
				t.Fatalf("the identity was read as source %q, virtual rank %d", p.source, p.virtual)
			}
			all = 0
			for _, size := range sizes {
				p.Extend(&sources.Segment{ID: int64(len(p.Segs)), End: size})
				all += size
			}
			ps := p.line(pass)
			for i := range p.LineBlocks() {
				in := ps.Order.Source(i * opt.Block)
				if want := int64(ps.Order.Perm.Block(uint64(i)*uint64(n) + uint64(v))); in != want || seen[in] {
					t.Fatalf("block %d of virtual rank %d is block %d, seen %v, want %d", i, v, in, seen[in], want)
				}
				seen[in] = true
			}
			units += p.listed(pass)
			blocks = p.Count
		}
		if int64(len(seen)) != blocks || units != all {
			t.Fatalf("%d of %d blocks, %d of %d units", len(seen), blocks, units, all)
		}
	})
}

func TestAnIdentityWithoutItsVirtualRankIsRefused(t *testing.T) {
	for _, identity := range []string{"files:a", "files:a#3", "files:a#3/4", "files:a#8/8", "files:a#03/8", "files:a#-1/8", "#1/8", "files:a#1/8x"} {
		if err := (&partition{ds: &dataset{opt: Options{VirtualRanks: 8}}}).named(identity); err == nil {
			t.Errorf("identity %q was accepted, want a refusal", identity)
		}
	}
}
