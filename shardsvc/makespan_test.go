package shardsvc

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/sources"
)

// pacedWorker reads at a fixed rate on a virtual clock, as an agent with a trainer does. It
// keeps two leases and acks at every tick. If the master asks for a tail, it gives up no
// record that its trainer already has.
type pacedWorker struct {
	no      uint32
	rate    float64
	budget  float64
	dead    bool
	open    bool // a request was sent and is not answered
	leases  []Reply
	prefix  []int64
	nextReq uint64
}

// makespan reads an input and returns the time that this took, as a multiple of the ideal
// time. The ideal is computed with the kill known in advance.
func makespan(t testing.TB, rates []float64, seconds float64, kill int, killAt float64) float64 {
	const tick = 10 * Millisecond
	w := newWorld(t, Config{Job: "j", Model: Shared})
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	total := int64(sum * seconds)
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 256 << 10, Min: 16 << 10, Max: 1 << 30, Target: 2 * Second}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "p"})
	w.step(&AddSegments{Partition: 1, Complete: true, Segments: []sources.Segment{{ID: 0, End: total, Sealed: true}}})
	w.step(&PartitionsListed{Dataset: 1})
	m := &Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}}
	var workers []*pacedWorker
	for i, r := range rates {
		workers = append(workers, &pacedWorker{no: uint32(i), rate: r})
		m.Joins = append(m.Joins, Join{Worker: uint32(i), Rank: uint32(i), Incarnation: uint64(i) + 1, WorldSize: uint32(len(rates))})
	}
	begin := w.now
	ended := false
	step := func(ev Event) {
		w.fx.Reset()
		w.wake = w.core.Step(w.now, ev, &w.fx)
		replies := w.fx.Replies
		for i := 0; i < len(replies); i++ {
			r := replies[i]
			p := workers[min(int(r.Worker), len(workers)-1)]
			switch r.Kind {
			case ReplyGrant:
				p.open = false
				p.leases, p.prefix = append(p.leases, r), append(p.prefix, r.Start)
			case ReplyStanding:
				ended = ended || r.State == End
			case ReplySteal:
				for _, p := range workers {
					replies = append(replies, p.asked(w, r)...)
				}
			}
		}
	}
	step(m)
	for !ended {
		w.now += tick
		at := float64(w.now-begin) / float64(Second)
		if at > 10*seconds {
			t.Fatal("the input was not read to its end")
		}
		m := &Message{Session: 1}
		for i, p := range workers {
			if i == kill && at >= killAt && !p.dead {
				p.dead = true
				step(&Message{Session: 1, Leaves: []Leave{{Worker: p.no, Reason: LeaveKilled, Ended: true}}})
			}
			if !p.dead {
				p.read(m, float64(tick)/float64(Second))
			}
		}
		step(m)
		step(&Tick{})
	}
	ideal := seconds
	if kill >= 0 {
		ideal = killAt + (float64(total)-sum*killAt)/(sum-rates[kill])
	}
	return float64(w.now-begin) / float64(Second) / ideal
}

func (p *pacedWorker) read(m *Message, dt float64) {
	p.budget += p.rate * dt
	for len(p.leases) > 0 && p.budget >= 1 {
		n := min(int64(p.budget), p.leases[0].End-p.prefix[0])
		p.budget -= float64(n)
		p.prefix[0] += n
		m.Acks = append(m.Acks, Ack{Token: p.leases[0].Token, Prefix: p.prefix[0], Step: 1})
		if p.prefix[0] == p.leases[0].End {
			p.leases, p.prefix = p.leases[1:], p.prefix[1:]
		}
	}
	if len(p.leases) == 0 {
		p.budget = 0
	}
	if len(p.leases) < 2 && !p.open {
		p.open = true
		p.nextReq++
		m.Requests = append(m.Requests, LeaseRequest{ID: p.nextReq, Worker: p.no, Dataset: 1, Rate: p.rate})
	}
}

// asked answers a steal: it gives up the units that are not read yet, except those of the next frame.
func (p *pacedWorker) asked(w *world, r Reply) []Reply {
	for i := range p.leases {
		if p.leases[i].Token != r.Token {
			continue
		}
		at := max(r.At, p.prefix[i])
		if i == 0 {
			at = max(r.At, p.prefix[i]+int64(p.rate/20))
		}
		end := p.leases[i].End
		if at < end {
			p.leases[i].End = at
			if at == p.prefix[i] {
				p.leases = append(p.leases[:i:i], p.leases[i+1:]...)
				p.prefix = append(p.prefix[:i:i], p.prefix[i+1:]...)
			}
		}
		ev := &Message{Session: 1, Answers: []StealAnswer{{Token: r.Token, At: at, Refused: at >= end}}}
		fx := Effects{}
		w.core.Step(w.now, ev, &fx)
		return fx.Replies
	}
	return nil
}

// TestWorkersOfUnequalSpeedFinishTogether: workers of the rates 10:10:10:1 finish within 3 %
// of the ideal time, also if one of them is killed on the way.
func TestWorkersOfUnequalSpeedFinishTogether(t *testing.T) {
	const mb = 1 << 20
	rates := []float64{10 * mb, 10 * mb, 10 * mb, 1 * mb}
	for _, c := range []struct {
		kill    int
		at      float64
		seconds float64
	}{{-1, 0, 60}, {0, 30, 60}, {3, 30, 60}, {0, 55, 60}, {-1, 0, 20}} {
		t.Run(fmt.Sprintf("kill %d at %v of %v s", c.kill, c.at, c.seconds), func(t *testing.T) {
			ratio := makespan(t, rates, c.seconds, c.kill, c.at)
			t.Logf("makespan %.4f of the ideal", ratio)
			if ratio > 1.03 {
				t.Errorf("makespan is %.4f of the ideal, goal 1.03", ratio)
			}
		})
	}
}
