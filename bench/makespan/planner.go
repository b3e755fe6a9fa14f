package main

import (
	"fmt"
	"os"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// planner is the time that the core takes for a grant and its ack, in ns, with 10,000 partitions, 100 workers
// and batches of 100. It includes the encoding of puts.
func planner() float64 {
	const partitions, workers, batch, rounds = 10_000, 100, 100, 3_000
	core := shardsvc.New(shardsvc.Config{Job: "bench", Model: "shared"})
	var fx shardsvc.Effects
	now := shardsvc.Second
	step := func(ev shardsvc.Event) {
		fx.Reset()
		core.Step(now, ev, &fx)
		core.Flush(&fx)
	}
	step(&shardsvc.Start{})
	const size = 1 << 10
	step(&shardsvc.ApplyDataset{ID: core.NextDataset(), Name: "d", Options: shardsvc.Options{
		Passes: 1, Target: 2 * shardsvc.Second, Initial: size, Min: size, Max: size, Unit: "records",
	}})
	for p := range partitions {
		number := core.NextPartition()
		step(&shardsvc.AddPartition{Dataset: 1, Number: number, Identity: fmt.Sprintf("p:%d", p)})
		step(&shardsvc.AddSegments{Partition: number, Segments: []sources.Segment{{End: 1 << 40, Sealed: true}}, Complete: true})
	}
	step(&shardsvc.PartitionsListed{Dataset: 1})
	hello := &shardsvc.Message{Session: 1, Hello: &shardsvc.Hello{Agent: "a", Incarnation: 1}}
	for w := range uint32(workers) {
		hello.Joins = append(hello.Joins, shardsvc.Join{Worker: w + 1, Rank: w, Incarnation: uint64(w + 1), WorldSize: workers})
	}
	step(hello)

	var m shardsvc.Message
	m.Session = 1
	id, pairs := uint64(0), 0
	start := time.Now()
	for range rounds {
		m.Requests = m.Requests[:0]
		for range batch {
			id++
			m.Requests = append(m.Requests, shardsvc.LeaseRequest{ID: id, Worker: uint32(id%workers) + 1, Dataset: 1, Rate: 1e6, Count: 1})
		}
		now += shardsvc.Millisecond
		step(&m)
		m.Acks = m.Acks[:0]
		for _, r := range fx.Replies {
			if r.Kind == shardsvc.ReplyGrant {
				m.Acks = append(m.Acks, shardsvc.Ack{Token: r.Token, Prefix: r.End, Step: int64(id)})
			}
		}
		pairs += len(m.Acks)
	}
	ns := float64(time.Since(start).Nanoseconds()) / float64(max(pairs, 1))
	if pairs < rounds*batch*9/10 {
		fail(fmt.Errorf("only %d of %d requests were granted", pairs, rounds*batch))
	}
	fmt.Fprintf(os.Stderr, "planner: %.0f ns a grant and ack, %d partitions, %d pairs\n", ns, partitions, pairs)
	return ns
}
