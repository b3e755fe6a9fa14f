package sim

import (
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc/cut"
)

// input is everything there is to read, and the truth about it. Records are numbered from 0 over all
// partitions of all datasets. In pass n record i has the number n*total+i.
type input struct {
	parts    []*part
	total    int
	of       []*segment // of each record
	datasets []datasetPlan
	maxWait  Time
	full     bool // every batch has all its rows
	deadly   []int32
}

type part struct {
	dataset  int // index in input.datasets
	identity string
	segs     []*segment
	first    int // number of its first record
	complete Time
	history  bool      // it is a history, read before or beside the others
	log      *inputLog // the log that holds it; nil: none
	number   int       // in log
	needed   cut.Place // of a log: the place from which the core needs records, when last looked at
	back     bool      // that place has gone back, or the log has lost records
}

type segment struct {
	id, start, end int64
	first          int     // number of its first record
	begins         []int64 // of each record
	ends           []int64
	listed         Time   // no master has seen it before
	grows          Time   // > 0: it is unsealed, and its head moves until then
	low            int64  // below it the source has deleted everything
	opens          int64  // where a listing begins
	bad            []bool // records that cannot be decoded
	rolls          bool   // it is sealed when it stops growing, and another segment follows

	// Only for a log:
	logged bool
	came   int  // how many of its records are there
	over   bool // no more will come
	known  bool // a master has listed it, durably
}

// newInput draws an input of about n records.
func (w *World) newInput(n int) *input {
	in := &input{datasets: w.plan.datasets, maxWait: w.plan.maxWait, full: w.plan.drops}
	spoils := rand.New(rand.NewPCG(w.story.Seed, 0xbad))
	w.spoilt = spoils.IntN(3) == 0 && w.plan.exact == 0 // bit_exact refuses on_error: skip
	rolls := rand.New(rand.NewPCG(w.story.Seed, 0x5e9)) // dice of its own, so that the seed's other draws do not change
	w.drawCatchUp(in)
	for d := range in.datasets {
		parts := w.of(1, 3)
		if w.plan.exact > 0 {
			parts = 1
		}
		history := in.datasets[d].opt.Backfill.Kind != ""
		if history {
			parts++
		}
		for k := range parts {
			p := &part{dataset: d, identity: fmt.Sprintf("d%d/p%d", d+1, k), first: in.total}
			if history && k == 0 {
				p.identity, p.history = historyOf(d), true
			}
			segs := w.of(1, 4)
			gone := Time(0)
			for id := range segs {
				s := &segment{id: int64(id), start: int64(w.of(0, 40)), first: in.total, listed: gone}
				at := s.start + int64(w.of(0, 3))
				size := w.of(1, 4)
				for range w.of(0, 2*n/(parts*segs*len(in.datasets))) + 10*(w.story.Size-1) {
					length := int64(w.of(1, size))
					s.begins, s.ends = append(s.begins, at), append(s.ends, at+length)
					if at += length; w.oneIn(8) {
						at += int64(w.of(1, 6)) // positions without a record
					}
				}
				s.end, s.low, s.opens = at, s.start, s.start
				s.bad = make([]bool, len(s.begins))
				for k := range s.bad {
					s.bad[k] = w.spoilt && spoils.IntN(8) == 0
				}
				in.total += len(s.begins)
				for range s.begins {
					in.of = append(in.of, s)
				}
				p.segs = append(p.segs, s)
				if w.plan.live {
					gone += w.time(0, 2*second)
				}
			}
			last := p.segs[segs-1]
			if w.plan.live && !in.datasets[d].opt.Shuffle && w.oneIn(2) && !p.history {
				last.grows = gone + w.time(second, 6*second)
				gone = last.grows
			}
			p.complete = gone
			if last.grows > 0 && rolls.IntN(2) == 0 {
				p.rollOver()
			}
			in.parts = append(in.parts, p)
		}
	}
	w.bePushed(in)
	w.beLogged(in)
	w.beDeadly(in)
	return in
}

// rollOver makes each segment grow until the next one begins, when it is sealed.
func (p *part) rollOver() {
	for i, s := range p.segs[:len(p.segs)-1] {
		if next := p.segs[i+1].listed; next > s.listed {
			s.grows, s.rolls = next, true
		}
	}
}

// head is where a growing segment ends at a moment. It ends after a whole record.
func (s *segment) head(now Time) int64 {
	if s.logged {
		return int64(s.came) * memsource.Stride
	}
	if s.grows == 0 || now >= s.grows {
		return s.end
	}
	share := float64(max(now-s.listed, 0)) / float64(max(s.grows-s.listed, 1))
	n := int(share * float64(len(s.begins)))
	if n == 0 {
		return s.start
	}
	return s.ends[n-1]
}

// part is the partition of the source that a partition of the core reads.
func (in *input) part(identity string) *part {
	if n := in.datasets[0].opt.VirtualRanks; n > 0 {
		identity, _ = cut.SourceIdentity(identity, n)
	}
	for _, p := range in.parts {
		if p.identity == identity {
			return p
		}
	}
	return nil
}

// A master numbers segments as it lists them. A master that begins on an empty disk may number them
// differently.
const lives = 10

// place is the index of a segment in its partition, from a number that some master gave it.
func place(id int64) int64 { return id % lives }

func (p *part) segment(id int64) *segment {
	if i := place(id); i >= 0 && i < int64(len(p.segs)) {
		return p.segs[i]
	}
	return nil
}

// from is the index of the first record of s that begins at offset or later.
func (s *segment) from(offset int64) int {
	return sort.Search(len(s.begins), func(i int) bool { return s.begins[i] >= offset })
}

// where names a record for people.
func (in *input) where(rec int32) string {
	pass, i := int(rec)/in.total, int(rec)%in.total
	for _, p := range in.parts {
		for _, s := range p.segs {
			if i >= s.first && i < s.first+len(s.begins) {
				return fmt.Sprintf("%s pass %d segment %d offset %d", p.identity, pass, s.id, s.begins[i-s.first])
			}
		}
	}
	return "?"
}

// mix is the hash of a record's number, which has the pass in it. A model is a sum of these hashes.
func mix(rec int32) uint64 {
	z := (uint64(uint32(rec)) + 1) * 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
