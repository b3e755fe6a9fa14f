package rounds

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// In no history does one rank get a round that another never gets. The test plays a world of
// ranks, agents and a master at random: messages wait in queues, rows are leased, stolen and
// given back, agents and masters end and start again, ranks join late. After each event, if any
// rank was told to yield round n, the processes of all ranks have their batches of the rounds
// up to n. No round follows the last one. When the faults end, all ranks yield the same rounds,
// with every row once. If all rounds must be full, the rows that are left over are in no round.
func TestEitherAllRanksGetARoundOrNone(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	// Seeds that failed once: a new agent, a new master after the last round with Drop.
	seeds := []uint64{1795540315697276194, 1795543682646484404}
	for i := range uint64(1200) {
		seed := i
		if i >= 900 {
			seed = base + i
		}
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		if err := play(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

const batch = 4 // rows

type history struct {
	*rand.Rand
	now     int64
	opt     Options
	own     bool  // each rank has rows of its own
	pool    []int // rows that are leased to nobody: by rank if own, else all of them in pool[0]
	made    int   // rows so far
	toCome  int
	series  *Series
	newest  []uint64
	told    []Decision
	ranks   []*fakeRank
	quiet   bool // no faults any more
	message int
}

type fakeRank struct {
	joined bool
	// The process.
	sizes   []int // by round that it has received: the rows of its batch
	yielded uint32
	heard   Decision
	rows    Rows[uint64] // by round that it was told of: the rows of all ranks
	// The agent.
	partial int
	sealed  []int
	newest  uint64
	drained bool
	close   uint32
	in      []toAgent
	out     []toMaster
	said    Report
	counted int // rounds whose rows it has reported in this session
}

type toAgent struct {
	rows    []uint64
	grant   int
	newest  uint64
	drained bool
	round   *Decision
}

type toMaster struct {
	back     int
	report   *Report
	told     uint32
	toldLast bool // only with Drop; without it, a new master finds the last round again by itself
	toldRows []uint64
}

func (h *history) Pending(rank int) bool {
	return *h.rows(rank) > 0 || !h.opt.Endless && h.toCome > 0
}
func (h *history) Newest(rank int) uint64 { return h.newest[rank] }
func (h *history) Moving() bool           { return false }
func (h *history) Settled() bool          { return h.made == 0 && h.toCome == 0 && !h.opt.Endless }

// rows points to the number of rows that a rank may be leased.
func (h *history) rows(rank int) *int {
	if h.own {
		return &h.pool[rank]
	}
	return &h.pool[0]
}

func play(seed uint64) error {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 7))}
	n := 1 + h.IntN(4)
	h.opt = Options{World: n, Settle: int64(h.IntN(20)), Endless: h.IntN(4) == 0}
	if h.opt.Endless || h.IntN(2) == 0 {
		h.opt.MaxWait = 1 + int64(h.IntN(60))
	}
	h.toCome = h.IntN(120)
	h.opt.Drop = !h.opt.Endless && seed%3 == 0
	if h.own = !h.opt.Endless && seed%3 == 1; h.own {
		h.opt = Options{World: n}
	}
	h.pool = make([]int, n)
	for range n {
		h.ranks = append(h.ranks, &fakeRank{})
	}
	h.newMaster()
	for range 200 + h.IntN(600) {
		h.event()
		if err := h.check(); err != nil {
			return err
		}
	}
	h.quiet = true
	for i := range 40000 {
		h.event()
		if err := h.check(); err != nil {
			return err
		}
		if h.over() {
			return h.equal()
		}
		_ = i
	}
	return fmt.Errorf("the rounds do not end: decided %+v, ranks %s", h.series.said, h.describe())
}

func (h *history) describe() (s string) {
	for i, r := range h.ranks {
		s += fmt.Sprintf("\n%d: received %d, yielded %d, heard %+v, partial %d, sealed %v, drained %v, said %+v", i, len(r.sizes), r.yielded, r.heard, r.partial, r.sealed, r.drained, r.said)
	}
	return s + fmt.Sprintf("\npool %v, to come %d", h.pool, h.toCome)
}

func (h *history) event() {
	h.now += int64(h.IntN(5))
	k := h.IntN(len(h.ranks))
	r := h.ranks[k]
	switch h.IntN(12) {
	case 0:
		if !r.joined && (h.quiet || h.IntN(3) == 0) {
			r.joined = true
			h.say(r)
		}
	case 1:
		if n := min(h.toCome, 1+h.IntN(9)); n > 0 {
			h.toCome, h.made = h.toCome-n, h.made+n
			*h.rows(k) += n
		}
	case 2:
		if n := min(*h.rows(k), 1+h.IntN(9)); n > 0 && r.joined && r.partial < 3*batch {
			*h.rows(k) -= n
			h.message++
			h.newest[k] = uint64(h.message)
			r.in = append(r.in, toAgent{grant: n, newest: h.newest[k]})
			h.decide()
		}
	case 3:
		if r.joined && !h.Pending(k) && len(r.in) == 0 {
			r.in = append(r.in, toAgent{drained: true})
		}
	case 4, 5:
		h.agentHears(r)
	case 6:
		if len(r.sealed) > 0 && len(r.sizes)-int(r.yielded) < 4 {
			r.sizes, r.sealed = append(r.sizes, r.sealed[0]), r.sealed[1:]
			h.say(r)
		}
	case 7, 8:
		if len(r.out) > 0 {
			m := r.out[0]
			r.out = r.out[1:]
			*h.rows(k) += m.back
			if m.report != nil {
				h.series.Heard(m.told, m.toldLast, m.toldRows)
				h.series.Report(k, *m.report)
			}
			h.decide()
		}
	case 9:
		if r.yielded < r.heard.Through {
			r.yielded++
		}
	case 10:
		h.decide()
		if r.partial > 0 && !h.own && !h.quiet && h.IntN(3) == 0 { // its tail is stolen
			n := 1 + h.IntN(r.partial)
			r.partial -= n
			r.out = append(r.out, toMaster{back: n})
			h.say(r)
		}
	case 11:
		switch {
		case h.quiet:
		case h.IntN(15) == 0:
			h.newMaster()
		case h.IntN(15) == 0:
			h.newAgent(k)
		}
	}
}

// say queues a report of what has changed since the last one.
func (h *history) say(r *fakeRank) {
	if !r.joined {
		return
	}
	now := Report{Through: uint32(len(r.sizes)), More: r.partial > 0 || len(r.sealed) > 0, Drained: r.drained, Newest: r.newest}
	if !reflect.DeepEqual(now, r.said) || len(r.out) == 0 {
		r.said = now
		m := toMaster{report: &now}
		if r.counted < 0 { // the first report of a new session
			r.counted = int(r.heard.Through)
			m.told, m.toldLast, m.toldRows = r.heard.Through, r.heard.Last && h.opt.Drop, slices.Clone(r.rows.From(0))
		}
		for _, n := range r.sizes[r.counted:] {
			now.Rows = append(now.Rows, uint32(n))
		}
		r.counted = len(r.sizes)
		r.out = append(r.out, m)
	}
}

func (h *history) agentHears(r *fakeRank) {
	if len(r.in) == 0 {
		return
	}
	m := r.in[0]
	r.in = r.in[1:]
	switch {
	case m.round != nil:
		r.rows.Upto(m.round.Through, m.rows)
		if m.round.Through > r.heard.Through || m.round.Last || m.round.Over != "" {
			r.heard = *m.round
		}
		r.close = m.round.Close
	case m.drained:
		r.drained = true
	default:
		r.partial += m.grant
		r.drained, r.newest = false, m.newest
	}
	for r.partial >= batch {
		r.partial -= batch
		r.sealed = append(r.sealed, batch)
	}
	if next := uint32(len(r.sizes)+len(r.sealed)) + 1; r.close >= next {
		r.sealed, r.partial = append(r.sealed, r.partial), 0
	}
	h.say(r)
}

func (h *history) decide() {
	d, _ := h.series.Decide(h.now, h)
	for k, r := range h.ranks {
		if r.joined && h.told[k] != d {
			r.in = append(r.in, toAgent{round: &d, rows: slices.Clone(h.series.Rows(h.told[k].Through))})
			h.told[k] = d
		}
	}
}

// newMaster ends the master. Messages on their way are lost, and the rows in them
// become pending.
func (h *history) newMaster() {
	h.series, h.newest, h.told = New(h.opt), make([]uint64, len(h.ranks)), make([]Decision, len(h.ranks))
	for k, r := range h.ranks {
		h.cut(k)
		h.say(r)
	}
}

func (h *history) cut(k int) {
	r := h.ranks[k]
	for _, m := range r.in {
		*h.rows(k) += m.grant
	}
	for _, m := range r.out {
		*h.rows(k) += m.back
	}
	r.in, r.out, r.newest, r.drained, r.counted = nil, nil, 0, false, -1
}

// newAgent ends an agent. Rows that its trainer has not received become pending. The
// process still has the leases that the agent knew, and the new agent takes them over.
func (h *history) newAgent(k int) {
	r := h.ranks[k]
	newest := r.newest
	h.cut(k)
	r.newest = newest
	*h.rows(k) += r.partial
	for _, n := range r.sealed {
		*h.rows(k) += n
	}
	r.partial, r.sealed, r.close = 0, nil, 0
	h.newest[k], h.told[k] = newest, Decision{}
	h.say(r)
}

func (h *history) check() error {
	for i, r := range h.ranks {
		for j, o := range h.ranks {
			if int(r.heard.Through) > len(o.sizes) {
				return fmt.Errorf("rank %d may yield round %d, but rank %d has received only %d rounds", i, r.heard.Through, j, len(o.sizes))
			}
			if r.heard.Last && !h.opt.Drop && len(o.sizes) > int(r.heard.Through) {
				return fmt.Errorf("rank %[2]d was told that round %[1]d is the last one, but rank %[3]d has received %[4]d rounds", r.heard.Through, i, j, len(o.sizes))
			}
		}
		for round := int(r.yielded); round < int(r.heard.Through); round++ {
			sum := 0
			for _, o := range h.ranks {
				sum += o.sizes[round]
			}
			if n, known := r.rows.Of(uint32(round) + 1); !known || n != uint64(sum) {
				return fmt.Errorf("round %d has %d rows on all ranks, but rank %d was told of %d (known: %v)", round+1, sum, i, n, known)
			}
		}
		for _, n := range r.sizes {
			if h.opt.Drop && n != batch {
				return fmt.Errorf("all rounds must have %d rows, but rank %d has received %d in one of them: %v", batch, i, n, r.sizes)
			}
		}
		for n, next := range r.sizes[min(1, len(r.sizes)):] {
			if h.own && next > 0 && r.sizes[n] < batch {
				return fmt.Errorf("rank %d has a short batch before its last rows: %v", i, r.sizes)
			}
		}
		if !h.opt.Drop && r.heard.Last && h.rowsLeft() > 0 {
			return fmt.Errorf("rank %[2]d was told that round %[1]d is the last one, but %[3]d rows are in no round", r.heard.Through, i, h.rowsLeft())
		}
	}
	return nil
}

func (h *history) rowsLeft() int {
	n := h.made + h.toCome
	for _, r := range h.ranks {
		for _, k := range r.sizes {
			n -= k
		}
	}
	return n
}

// over says whether a bounded input has had its last round, or an input without an end has
// no row left and nothing is under way.
func (h *history) over() bool {
	for _, r := range h.ranks {
		if !r.joined || r.yielded < r.heard.Through || !h.opt.Drop && int(r.heard.Through) < len(r.sizes) || !h.opt.Endless && !r.heard.Last {
			return false
		}
	}
	return h.opt.Drop || h.rowsLeft() == 0
}

func (h *history) equal() error {
	for i, r := range h.ranks {
		if r.yielded != h.ranks[0].yielded {
			return fmt.Errorf("rank 0 has yielded %d rounds, but rank %d has yielded %d", h.ranks[0].yielded, i, r.yielded)
		}
	}
	return nil
}
