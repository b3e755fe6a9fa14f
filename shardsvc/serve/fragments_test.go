package serve

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// BenchmarkFragments measures the cost of a cut of a private model whose rank has had n
// leases, each between two leases of another rank. Such a cut has n ranges. docs/CUTS.md
// has the figures.
//
//	go test ./shardsvc/serve -run '^$' -bench Fragments -benchtime 1x
func BenchmarkFragments(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("ranges=%d", n), func(b *testing.B) {
			for b.Loop() {
				f := newFragments(b)
				f.train(n)
				f.save("first", uint64(1))
				f.train(300) // ten minutes of leases of 2 s
				f.save("next", uint64(2))
				stored := 0
				for _, size := range f.stored {
					stored += size
				}
				b.ReportMetric(float64(stored)/float64(2*n), "stored_B/lease")
				f.stored = nil // not the core's
				var mem runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&mem)
				b.ReportMetric(float64(mem.HeapAlloc)/float64(2*n), "heap_B/lease")
				runtime.KeepAlive(f)
			}
		})
	}
}

// fragments is a core with two private ranks that take leases in turns.
type fragments struct {
	b      *testing.B
	c      *shardsvc.Core
	fx     shardsvc.Effects
	now    shardsvc.Time
	acks   [2][]shardsvc.Ack
	step   int64
	stored map[string]int // bytes by key
}

func newFragments(b *testing.B) *fragments {
	f := &fragments{b: b, c: shardsvc.New(shardsvc.Config{Job: "j", Model: shardsvc.Private}), now: shardsvc.Second, stored: map[string]int{}}
	const lease = 20_000
	for _, ev := range []shardsvc.Event{
		&shardsvc.Start{},
		&shardsvc.ApplyDataset{ID: 1, Name: "d", Options: shardsvc.Options{Unit: "records", Passes: 1, Initial: lease, Min: lease, Max: lease, Target: 2 * shardsvc.Second, Stall: 600 * shardsvc.Second}},
		&shardsvc.AddPartition{Dataset: 1, Number: 1, Identity: "kafka:c/t/0"},
		&shardsvc.AddSegments{Partition: 1, Segments: []sources.Segment{{End: 1 << 50, Name: "t/0"}}},
	} {
		f.do(ev)
	}
	for rank := range uint32(2) {
		f.do(&shardsvc.Message{Session: shardsvc.Session(rank + 1), Hello: &shardsvc.Hello{Agent: fmt.Sprint(rank), Incarnation: 1},
			Joins: []shardsvc.Join{{Worker: 1, Rank: rank, Incarnation: uint64(rank) + 1, WorldSize: 2}}})
	}
	return f
}

func (f *fragments) do(ev shardsvc.Event) {
	f.now += shardsvc.Millisecond
	f.c.Step(f.now, ev, &f.fx)
}

// flush counts the bytes that would be written and takes the grants.
func (f *fragments) flush() (cut *cut.Cut) {
	f.c.Flush(&f.fx)
	for _, p := range f.fx.Puts {
		switch p.Op {
		case shardsvc.Set:
			f.stored[string(p.Key)] = len(p.Key) + len(p.Value)
		case shardsvc.Delete:
			delete(f.stored, string(p.Key))
		case shardsvc.DeleteRange:
			for key := range f.stored {
				if key >= string(p.Key) && key < string(p.Value) {
					delete(f.stored, key)
				}
			}
		}
	}
	for i := range f.fx.Replies {
		switch r := &f.fx.Replies[i]; r.Kind {
		case shardsvc.ReplyGrant:
			f.acks[r.To-1] = append(f.acks[r.To-1], shardsvc.Ack{Token: r.Token, Prefix: r.End, Step: f.step + 1})
		case shardsvc.ReplyCut:
			if cut = r.Cut.Body; r.Cut.Code != shardsvc.CutOK {
				f.b.Fatal(r.Reason)
			}
		}
	}
	f.fx.Reset()
	return cut
}

// train lets each rank take n leases, one in each step.
func (f *fragments) train(n int) {
	for range n {
		for session := range 2 {
			f.do(&shardsvc.Message{Session: shardsvc.Session(session + 1), Requests: []shardsvc.LeaseRequest{{ID: 1, Worker: 1, Dataset: 1, Count: 1}}})
		}
		f.flush()
		f.step++
		for session := range 2 {
			f.do(&shardsvc.Message{Session: shardsvc.Session(session + 1), Acks: f.acks[session], Steps: []shardsvc.StepReport{{Worker: 1, Step: f.step}}})
			f.acks[session] = f.acks[session][:0]
		}
		f.flush()
	}
}

// save freezes a cut of rank 0, encodes its manifest and binds it.
func (f *fragments) save(name string, id uint64) {
	call := func(k shardsvc.CutCall) (*cut.Cut, float64) {
		k.Worker = 1
		began := f.cpu()
		f.do(&shardsvc.Message{Session: 1, Calls: []shardsvc.CutCall{k}})
		took := f.cpu() - began
		return f.flush(), took
	}
	body, freeze := call(shardsvc.CutCall{ID: 2 * id, Ask: &shardsvc.CutAsk{Cut: id, Step: f.step, Path: "p"}})
	began := f.cpu()
	text, err := body.EncodeJSON()
	if err != nil {
		f.b.Fatal(err)
	}
	write := f.cpu() - began
	_, bind := call(shardsvc.CutCall{ID: 2*id + 1, Bind: &shardsvc.CutBind{Cut: id, Path: "p"}})
	ranges := len(body.Datasets[0].Partitions[0].Passes[0].Ranges) + 1
	f.b.ReportMetric(freeze, name+"_freeze_cpu_ms")
	f.b.ReportMetric(bind, name+"_bind_cpu_ms")
	f.b.ReportMetric(write, name+"_manifest_cpu_ms")
	if name == "next" {
		f.b.ReportMetric(float64(ranges), "ranges")
		f.b.ReportMetric(float64(len(body.Append(nil)))/float64(ranges), "body_B/range")
		f.b.ReportMetric(float64(len(text))/float64(ranges), "manifest_B/range")
	}
}

// cpu is this process's CPU time in ms, garbage collection included: other work on
// the machine does not change it much.
func (f *fragments) cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		f.b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}
