package shardsvc

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/sources"
)

// oneDataset gives w a dataset with so many partitions, each of one long segment.
func (w *world) oneDataset(opt Options, partitions uint32) {
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: opt})
	for n := range partitions {
		w.step(&AddPartition{Dataset: 1, Number: n + 1, Identity: fmt.Sprint("p", n)})
		w.step(&AddSegments{Partition: n + 1, Segments: []sources.Segment{{End: 1 << 40, Sealed: true}}, Complete: true})
	}
	w.step(&PartitionsListed{Dataset: 1})
}

// trainer joins a process of a rank, with an agent of its own.
func (w *world) trainer(session Session, agent string, rank uint32, incarnation uint64, world uint32, resume Resume) {
	w.step(&Message{Session: session, Hello: &Hello{Agent: agent, Incarnation: 1},
		Joins: []Join{{Worker: 1, Rank: rank, Incarnation: incarnation, WorldSize: world, Resume: resume}}})
}

// grant asks for a lease and returns it.
func (w *world) grant(session Session, worker uint32) Reply {
	w.t.Helper()
	w.step(&Message{Session: session, Requests: []LeaseRequest{{ID: 1, Worker: worker, Dataset: 1}}})
	for _, r := range w.fx.Replies {
		if r.Kind == ReplyGrant {
			return r
		}
	}
	w.t.Fatalf("no grant for worker %d", worker)
	return Reply{}
}

var longLeases = Options{Passes: 1, Initial: 1 << 20, Min: 1 << 20, Max: 1 << 20, Target: Second}

// TestProcessesThatWaitForSilentOnesCostLittle: a whole job dies, and comes again with
// resume=start before the old processes are given up. Each Step named all silent processes
// for each process that waited: with 400 ranks, the master stood still for a minute.
func TestProcessesThatWaitForSilentOnesCostLittle(t *testing.T) {
	const n = 60
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.oneDataset(Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second}, 1)
	for i := range n {
		w.trainer(Session(i+1), fmt.Sprint("old", i), uint32(i), uint64(i+1), n, ResumeDefault)
		w.grant(Session(i+1), 1)
	}
	for i := range n {
		w.step(&Lost{Session: Session(i + 1)})
	}
	w.now += Second
	for i := range n {
		w.trainer(Session(n+i+1), fmt.Sprint("new", i), uint32(i), uint64(n+i+1), n, ResumeStart)
	}
	if got := len(w.core.starters); got != n {
		t.Fatalf("%d processes wait, not %d", got, n)
	}
	empty := &Message{Session: n + 1}
	var fx Effects
	if got := testing.AllocsPerRun(10, func() { fx.Reset(); w.core.Step(w.now, empty, &fx) }); got > n {
		t.Errorf("a message that says nothing takes %v allocations while %d processes wait: it names the silent ones for each of them", got, n)
	}
	w.now += w.core.doubtfulFor()
	w.step(&Tick{})
	if got := len(w.core.starters); got != 0 {
		t.Errorf("%d processes still wait after the silent ones are given up", got)
	}
}

// TestPiecesFoldAfterARankHasGoneBack: the pieces of steps that a rank took back stood before
// those of the steps that it trained again, and none of these folded until the old step came.
func TestPiecesFoldAfterARankHasGoneBack(t *testing.T) {
	const history, steps = 16, 300
	w := newWorld(t, Config{Job: "j", Model: Private, History: history})
	w.oneDataset(longLeases, 1)
	train := func(session Session, steps int64) {
		g := w.grant(session, 1)
		for s := int64(1); s <= steps; s++ {
			w.step(&Message{Session: session, Acks: []Ack{{Token: g.Token, Prefix: g.Start + s, Step: s}}, Steps: []StepReport{{Worker: 1, Step: s}}})
		}
	}
	w.trainer(1, "a", 0, 1, 1, ResumeDefault)
	train(1, 2*steps)
	w.step(&Message{Session: 1, Leaves: []Leave{{Worker: 1, Reason: LeaveExited, Ended: true}}})
	w.trainer(2, "b", 0, 2, 1, ResumeStart)
	train(2, steps)
	if got := len(w.core.parts[1].passes[0].acks); got > history+1 {
		t.Errorf("%d pieces are kept apart after %d steps, with a history of %d", got, steps, history)
	}
}

// TestOldPiecesOfManyRanksFold: many ranks read one partition, and so its pieces are many.
// They fold a good part at a time, and all that are old fold.
func TestOldPiecesOfManyRanksFold(t *testing.T) {
	const ranks, history, steps = 20, 128, 400
	w := newWorld(t, Config{Job: "j", Model: Replicated})
	w.oneDataset(longLeases, 1)
	for i := range uint32(ranks) {
		w.trainer(Session(i+1), fmt.Sprint("a", i), i, uint64(i+1), ranks, ResumeDefault)
	}
	var leases [ranks]Reply
	for i := range leases {
		leases[i] = w.grant(Session(i+1), 1)
	}
	most := 0
	for s := int64(1); s <= steps; s++ {
		for i, g := range leases {
			m := &Message{Session: Session(i + 1), Acks: []Ack{{Token: g.Token, Prefix: g.Start + s, Step: s}}, Steps: []StepReport{{Worker: 1, Step: s}}}
			if s%50 == 0 {
				w.step(m)
				continue
			}
			w.fx.Reset() // without the checks of a whole world, which would take minutes
			w.core.Step(w.now, m, &w.fx)
			w.core.Flush(&w.fx)
			commit(w.store, w.fx.Puts)
		}
		most = max(most, len(w.core.parts[1].passes[0].acks))
	}
	if recent := ranks * (history + 2); most <= manyPieces || most > recent+recent/7+1 {
		t.Errorf("up to %d pieces were kept apart: %d are recent, and an eighth of all may be old", most, recent)
	}
	w.restart()
	if got, want := w.core.parts[1].tally(), int64(ranks*steps); got.Untold != want {
		t.Errorf("a new master knows %d units, not %d", got.Untold, want)
	}
}

// TestAnOrderThatNoCutCanHaveIsNotTaken: an agent said such an order, the next cut had a
// number that overflowed, and the state could not be opened again.
func TestAnOrderThatNoCutCanHaveIsNotTaken(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.oneDataset(longLeases, 1)
	w.trainer(1, "a", 0, 1, 1, ResumeDefault)
	w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 5, Path: "p"}}}})
	w.step(&Message{Session: 1, Calls: []CutCall{{Worker: 1, ID: 2, Ask: &CutAsk{Cut: 6, Path: "q", After: 1<<64 - 1}}}})
	w.restart()
	if got := len(w.core.cuts); got != 2 {
		t.Errorf("%d cuts are kept, not 2", got)
	}
}

// TestFrozenCutsOfKilledSaversAreDropped: they stayed for ever, each with its body.
func TestFrozenCutsOfKilledSaversAreDropped(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.oneDataset(longLeases, 3)
	for i := range uint64(5) {
		w.trainer(Session(i+1), "a", 0, i+1, 1, ResumeDefault)
		w.step(&Message{Session: Session(i + 1), Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 2*i + 1, Path: fmt.Sprint("p", i)}}}})
		w.step(&Message{Session: Session(i + 1), Leaves: []Leave{{Worker: 1, Reason: LeaveExited, Ended: true}}})
	}
	w.trainer(8, "b", 1, 8, 2, ResumeDefault) // this saver lives
	w.step(&Message{Session: 8, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 80, Path: "alive"}}}})
	w.trainer(9, "a", 0, 9, 2, ResumeDefault)
	w.step(&Message{Session: 9, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 100, Path: "z"}}}})
	w.step(&Message{Session: 9, Calls: []CutCall{{Worker: 1, ID: 2, Bind: &CutBind{Cut: 100, Path: "z"}}}})
	var states []string
	for _, k := range w.core.Cuts() {
		states = append(states, fmt.Sprint(k.Path, " ", k.State))
	}
	if got := fmt.Sprint(states); got != "[alive frozen z bound]" {
		t.Errorf("the cuts are %s", got)
	}
}

// TestTheShareOfBadRecordsIsOfRecordsThatAreInTheModel: records that were trained again after
// a rewind counted again, so the limit of a share grew with each rewind.
func TestTheShareOfBadRecordsIsOfRecordsThatAreInTheModel(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.oneDataset(longLeases, 1)
	for i := range uint64(3) {
		session := Session(i + 1)
		w.trainer(session, "a", 0, i+1, 1, ResumeDefault)
		g := w.grant(session, 1)
		w.step(&Message{Session: session, Acks: []Ack{{Token: g.Token, Prefix: g.Start + 1000, Step: 1, Told: true, From: g.Start, Rows: 1000}}})
		if got := w.core.datasets[1].bad.good; got != 1000 {
			t.Errorf("start %d: %d records count as good, not 1000", i, got)
		}
		w.step(&Message{Session: session, Leaves: []Leave{{Worker: 1, Reason: LeaveClosed, Ended: true}}})
		w.step(&Rewind{})
	}
	if got := w.core.datasets[1].bad.good; got != 0 {
		t.Errorf("%d records count as good after the rewind to the start", got)
	}
}

// TestAGroupHasNotMoreRanksThanAreCountedFor: memory is taken for each rank, so an absurd
// world size must be refused.
func TestAGroupHasNotMoreRanksThanAreCountedFor(t *testing.T) {
	for _, model := range []string{Shared, Replicated, Private} {
		w := newWorld(t, Config{Job: "j", Model: model})
		w.oneDataset(longLeases, 1)
		for i, j := range []Join{{Worker: 1, Incarnation: 1, WorldSize: 1<<32 - 1}, {Worker: 1, Incarnation: 2, Rank: 1<<32 - 1, WorldSize: 1}} {
			w.step(&Message{Session: Session(i + 1), Hello: &Hello{Agent: fmt.Sprint("a", i), Incarnation: 1}, Joins: []Join{j}})
			refused := false
			for _, r := range w.fx.Replies {
				refused = refused || r.Kind == ReplyJoin && r.Refused
			}
			if !refused {
				t.Errorf("%s: rank %d of %d was let in", model, j.Rank, j.WorldSize)
			}
		}
	}
}

// TestAScanLooksAtFewThieves: with more asks out than a scan has thieves, it looked at every
// process that waits.
func TestAScanLooksAtFewThieves(t *testing.T) {
	const leads, processes = maxThieves + 8, 4 * maxThieves
	w := newWorld(t, Config{Job: "j", Model: Shared})
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 1000, Min: 1000, Max: 1000, Target: Second}})
	for i := range uint32(leads) {
		w.step(&AddPartition{Dataset: 1, Number: i + 1, Identity: fmt.Sprint("x", i)})
		w.step(&AddSegments{Partition: i + 1, Segments: []sources.Segment{{End: 100}}}) // it grows, so it has a lead
	}
	for i := range uint32(processes) {
		w.trainer(Session(i+1), fmt.Sprint("a", i), i, uint64(i+1), processes, ResumeDefault)
	}
	for i := range processes {
		w.step(&Message{Session: Session(i + 1), Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1}}})
	}
	w.step(&SetPaused{ID: 1, Paused: true}) // asks for all leads
	w.step(&SetPaused{ID: 1})
	w.now += Second
	w.step(&Tick{})
	if got := len(w.core.thieves); got < leads || got > leads+1 {
		t.Errorf("the scan has %d thieves: %d asks are out", got, leads)
	}
}
