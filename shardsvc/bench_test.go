package shardsvc

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// BenchmarkPairs measures grants and their acks in the core alone: 10,000 partitions, 8
// agents, messages of `batch` requests and acks, one Flush per 8 messages as in a busy
// shell. Nothing is committed.
func BenchmarkPairs(b *testing.B) {
	for _, batch := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkPairs(b, batch) })
	}
}

func benchmarkPairs(b *testing.B, batch int) {
	const partitions, agents, lease = 10_000, 8, 100
	c := New(Config{Job: "bench", Model: Shared})
	var fx Effects
	now := Time(Second)
	step := func(ev Event) { c.Step(now, ev, &fx) }
	step(&Start{})
	step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: lease, Min: lease, Max: lease, Target: 2 * Second, Stall: 600 * Second}})
	for p := range uint32(partitions) {
		step(&AddPartition{Dataset: 1, Number: p + 1, Identity: fmt.Sprintf("bench:%d", p)})
		step(&AddSegments{Partition: p + 1, Segments: []sources.Segment{{ID: 0, End: 1 << 50}}})
	}
	msgs := make([]Message, agents)
	for i := range msgs {
		m := &msgs[i]
		m.Session = Session(i + 1)
		step(&Message{Session: m.Session, Hello: &Hello{Agent: fmt.Sprint(i), Incarnation: 1}, Joins: []Join{{Worker: 1, Rank: uint32(i), Incarnation: uint64(i) + 1, WorldSize: agents}}})
		for n := range batch {
			m.Requests = append(m.Requests, LeaseRequest{ID: uint64(n), Worker: 1, Dataset: 1, Rate: 50})
		}
	}
	b.ReportAllocs()
	puts := 0
	pairs := 0
	for b.Loop() {
		fx.Reset()
		for i := range msgs {
			now += 1000
			step(&msgs[i])
			msgs[i].Acks = msgs[i].Acks[:0]
		}
		c.Flush(&fx)
		puts += len(fx.Puts)
		for i := range fx.Replies {
			switch r := &fx.Replies[i]; r.Kind {
			case ReplyGrant:
				m := &msgs[r.To-1]
				m.Acks = append(m.Acks, Ack{Token: r.Token, Prefix: r.End, Step: 1})
				pairs++
			case ReplyAck:
				if r.Code != Durable {
					b.Fatal(r.Reason)
				}
			}
		}
	}
	b.ReportMetric(float64(pairs)/b.Elapsed().Seconds(), "pairs/s")
	b.ReportMetric(float64(puts)/float64(pairs), "puts/pair")
}

// BenchmarkListing measures how long the core takes to learn of all partitions of a dataset.
func BenchmarkListing(b *testing.B) {
	for _, partitions := range []uint32{10_000, 40_000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			for b.Loop() {
				c := New(Config{Job: "bench", Model: Shared})
				var fx Effects
				step := func(ev Event) {
					fx.Reset()
					c.Step(Time(Second), ev, &fx)
				}
				step(&Start{})
				step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 100, Min: 100, Max: 100, Target: 2 * Second, Stall: 600 * Second}})
				for p := range partitions {
					step(&AddPartition{Dataset: 1, Number: p + 1, Identity: fmt.Sprintf("bench:%d", p)})
				}
				if n := c.NextPartition(); n != partitions+1 {
					b.Fatalf("the next partition is number %d of %d: some were refused", n, partitions)
				}
			}
		})
	}
}

// BenchmarkShuffledPieces measures the cost of one block of a shuffled lease.
func BenchmarkShuffledPieces(b *testing.B) {
	p := line.NewPermutation(1<<22-5, 7, 0)
	x := uint64(0)
	for b.Loop() {
		x = p.Block(x)
	}
}
