package master

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
	"github.com/headrace/headrace/sources/kafka"
	"github.com/headrace/headrace/sources/pulsar"
)

// progress is a ledger of two datasets. One of them names a consumer group.
type progress struct {
	group string
	marks []sources.Mark
	moved chan struct{}
	empty bool // no dataset is applied yet
}

func (p *progress) Datasets(context.Context) ([]serve.Dataset, error) {
	if p.empty {
		return nil, nil
	}
	return []serve.Dataset{
		{ID: 1, Name: "files", Spec: &dataset.Spec{Source: &files.Spec{}}},
		{ID: 2, Name: "events", Spec: &dataset.Spec{Source: &kafka.Spec{Group: p.group}}},
	}, nil
}

func (p *progress) Moved() <-chan struct{} { return p.moved }

func (p *progress) CommitMarks(_ context.Context, id uint32) ([]sources.Mark, error) {
	if id != 2 {
		return nil, errors.New("nobody asked for it")
	}
	return p.marks, nil
}

func (p *progress) RetainMarks(context.Context, uint32) ([]sources.Mark, error) {
	return nil, errors.New("neither kind can keep records from deletion")
}

// group is the broker's side.
type group struct {
	sources.Source
	got  []sources.Mark
	told chan []sources.Mark
	fail error
}

func (g *group) Close() error { return nil }
func (g *group) Commit(_ context.Context, m []sources.Mark) error {
	if g.fail == nil {
		g.got = append(g.got, m...)
		if g.told != nil {
			g.told <- m
		}
	}
	return g.fail
}

func TestTheBrokerIsToldWhatIsNewAndAgainAfterAFailure(t *testing.T) {
	mark := func(p sources.PartitionID, at int64) sources.Mark {
		return sources.Mark{Partition: p, Position: sources.Position{Offset: at}}
	}
	ledger, broker := &progress{group: "g", marks: []sources.Mark{mark("a", 5), mark("b", 7)}}, &group{}
	c := &commits{srv: ledger, log: slog.New(slog.DiscardHandler), every: commitEvery, said: map[said]told{},
		open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
	round := func(want int) {
		t.Helper()
		broker.got = nil
		err := c.round(t.Context())
		if len(broker.got) != want {
			t.Errorf("the broker was told %v, want %d marks", broker.got, want)
		}
		if (err != nil) != (broker.fail != nil) {
			t.Errorf("the round returned %v, the broker %v", err, broker.fail)
		}
	}
	round(2)
	round(0)
	ledger.marks[1] = mark("b", 9)
	broker.fail = errors.New("not now")
	round(0)
	broker.fail = nil
	round(1)
	if broker.got[0] != mark("b", 9) {
		t.Errorf("after the failure the broker was told %v, want the new mark of b", broker.got)
	}
	old := c.said[said{dataset: 2, progress: "g", partition: "a"}]
	c.said[said{dataset: 2, progress: "g", partition: "a"}] = told{old.at, old.when.Add(-commitAgain)}
	round(1) // an old mark is told again before the broker forgets it

	ledger.group = "another" // this group has no offsets yet
	round(2)
	round(0)

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	ledger.marks[0] = mark("a", 6)
	broker.got = nil
	if c.run(stopped); len(broker.got) != 1 {
		t.Errorf("when the master stopped, the broker was told %v, want one mark", broker.got)
	}
}

func TestTheBrokerIsToldAtOnceWhenMarksMove(t *testing.T) {
	ledger := &progress{group: "g", marks: []sources.Mark{{Partition: "a", Position: sources.Position{Offset: 9}}}, moved: make(chan struct{}, 1)}
	broker := &group{told: make(chan []sources.Mark, 8)}
	c := &commits{srv: ledger, log: slog.New(slog.DiscardHandler), every: time.Hour, said: map[said]told{},
		open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	next := func(back bool) int64 {
		t.Helper()
		select {
		case m := <-broker.told:
			if m[0].Back != back {
				t.Errorf("the mark has Back %v, want %v", m[0].Back, back)
			}
			return m[0].Position.Offset
		case <-time.After(time.Minute):
			t.Fatal("the broker was not told in time")
			return 0
		}
	}
	if at := next(false); at != 9 {
		t.Errorf("the first mark is %d, want 9", at)
	}
	c.mu.Lock() // a rewind: the marks go back
	ledger.marks = []sources.Mark{{Partition: "a", Position: sources.Position{Offset: 4}}}
	c.mu.Unlock()
	ledger.moved <- struct{}{}
	if at := next(true); at != 4 {
		t.Errorf("after a rewind the mark is %d, want 4", at)
	}
	cancel()
	<-done
}

// growing is a broker that does what sources.Committer says: it takes no older mark than it has, unless Mark.Back is set.
type growing struct {
	sources.Source
	has  int64
	away bool
}

func (g *growing) Close() error { return nil }
func (g *growing) Commit(_ context.Context, marks []sources.Mark) error {
	if g.away {
		return errors.New("the broker is away")
	}
	for _, m := range marks {
		if m.Back || m.Position.Offset > g.has {
			g.has = m.Position.Offset
		}
	}
	return nil
}

// The job goes back while the broker is away, and the master ends before the broker is there again. The next
// master tells it. With Pulsar, a subscription that stays ahead lets Pulsar delete what is read again.
func TestTheNextMasterTellsTheBrokerOfARewind(t *testing.T) {
	ledger, broker := &progress{group: "g"}, &growing{}
	master := func() *commits {
		c := &commits{srv: ledger, log: slog.New(slog.DiscardHandler), every: commitEvery, said: map[said]told{},
			open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
		c.begin(t.Context())
		return c
	}
	tell := func(c *commits, at, want int64) {
		t.Helper()
		ledger.marks = []sources.Mark{{Partition: "a", Position: sources.Position{Offset: at}}}
		if err := c.round(t.Context()); (err != nil) != broker.away {
			t.Errorf("the round returned %v", err)
		}
		if broker.has != want {
			t.Errorf("the job is at %d, and the broker has %d, want %d", at, broker.has, want)
		}
	}
	first := master()
	tell(first, 100, 100)
	broker.away = true
	tell(first, 40, 100) // a rewind
	next := master()
	tell(next, 40, 100)
	broker.away = false
	tell(next, 40, 40)
	tell(next, 50, 50)

	ledger.group, broker.has = "another", 1000 // nobody told this group anything: what it has is not ours
	tell(next, 60, 1000)
	tell(next, 1001, 1001)
}

// A state folder was lost, and its dataset is applied again. The broker still has the marks of the lost folder.
// They stay until the trainers have restored their checkpoint.
func TestABrokerIsNotToldToGoBackByAMasterWithoutHistory(t *testing.T) {
	ledger, broker := &progress{group: "g", marks: []sources.Mark{{Partition: "a"}}, empty: true}, &growing{has: 500}
	c := &commits{srv: ledger, log: slog.New(slog.DiscardHandler), every: commitEvery, said: map[said]told{},
		open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
	c.begin(t.Context())
	ledger.empty = false
	if err := c.round(t.Context()); err != nil || broker.has != 500 {
		t.Errorf("the broker has %d (%v), want 500", broker.has, err)
	}
}

// holding is a broker that keeps records for a dataset until it is released.
type holding struct {
	sources.Source
	began, goOn chan struct{}
	kept        atomic.Bool
	released    chan struct{}
}

func (h *holding) Close() error                                       { return nil }
func (h *holding) Begin(context.Context, []sources.PartitionID) error { return nil }
func (h *holding) Commit(context.Context, []sources.Mark) error       { return nil }
func (h *holding) Release(context.Context) error                      { h.kept.Store(false); close(h.released); return nil }
func (h *holding) Retain(context.Context, []sources.Mark) error {
	close(h.began)
	<-h.goOn
	h.kept.Store(true)
	return nil
}

// oneRetained is a ledger of a dataset whose broker keeps records.
type oneRetained struct{ progress }

func (*oneRetained) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{{ID: 1, Name: "clicks", Spec: &dataset.Spec{Source: &memsource.Spec{}}}}, nil
}
func (*oneRetained) RetainMarks(context.Context, uint32) ([]sources.Mark, error) {
	return []sources.Mark{{Partition: "a"}}, nil
}
func (*oneRetained) CommitMarks(context.Context, uint32) ([]sources.Mark, error) { return nil, nil }

// A dataset is deleted while a round tells a slow broker about it. The round must not make the removed
// subscription again. Otherwise the broker would keep records for nobody, for ever.
func TestWhatADeletedDatasetHasAtItsBrokerIsNotMadeAgain(t *testing.T) {
	broker := &holding{began: make(chan struct{}), goOn: make(chan struct{}), released: make(chan struct{})}
	c := &commits{srv: &oneRetained{}, log: slog.New(slog.DiscardHandler), every: commitEvery, said: map[said]told{},
		open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.round(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-broker.began
	wg.Go(func() {
		if err := c.release(t.Context(), &dataset.Spec{Source: &memsource.Spec{}}); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-broker.released:
		t.Error("the subscription was released while a round tells the broker to keep records")
	case <-time.After(200 * time.Millisecond): // time in which a defect would show
	}
	close(broker.goOn)
	wg.Wait()
	if broker.kept.Load() {
		t.Error("the broker keeps records for a dataset that was deleted")
	}
}

// retaining is a broker that can fail to retain records, or to note progress, for some partitions.
type retaining struct {
	sources.Source
	untold            map[sources.PartitionID]bool // Retain and Commit fail for these
	fail              error                        // Retain fails with it for all partitions
	retained, commits []sources.PartitionID
}

func (r *retaining) Close() error                                       { return nil }
func (r *retaining) Begin(context.Context, []sources.PartitionID) error { return nil }
func (r *retaining) Release(context.Context) error                      { return nil }
func (r *retaining) Retain(_ context.Context, m []sources.Mark) error {
	if r.fail != nil {
		return r.fail
	}
	return r.take(&r.retained, m)
}
func (r *retaining) Commit(_ context.Context, m []sources.Mark) error { return r.take(&r.commits, m) }
func (r *retaining) take(into *[]sources.PartitionID, marks []sources.Mark) error {
	var ids []sources.PartitionID
	var errs []error
	for _, m := range marks {
		var err error
		if r.untold[m.Partition] {
			err = errors.New("not now")
		} else {
			*into = append(*into, m.Partition)
		}
		ids, errs = append(ids, m.Partition), append(errs, err)
	}
	return sources.UntoldOf(ids, errs)
}

// threeRetained is a ledger of a dataset whose broker keeps records and notes progress.
type threeRetained struct{ progress }

func (*threeRetained) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{{ID: 1, Name: "clicks", Spec: &dataset.Spec{Source: &pulsar.Spec{Subscription: "x"}}}}, nil
}
func (*threeRetained) RetainMarks(context.Context, uint32) ([]sources.Mark, error) {
	return []sources.Mark{{Partition: "a"}, {Partition: "b"}, {Partition: "c"}}, nil
}
func (t *threeRetained) CommitMarks(ctx context.Context, id uint32) ([]sources.Mark, error) {
	return t.RetainMarks(ctx, id)
}

// A partition whose records the broker does not retain gets no commit, because that may let
// the broker delete them. The others get theirs.
func TestAPartitionThatCannotBeToldKeepsNoOtherFromIt(t *testing.T) {
	broker := &retaining{untold: map[sources.PartitionID]bool{"b": true}, fail: errors.New("nothing goes")}
	c := &commits{srv: &threeRetained{}, log: slog.New(slog.DiscardHandler), every: commitEvery, said: map[said]told{},
		open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
	round := func(want ...sources.PartitionID) {
		t.Helper()
		broker.retained, broker.commits = nil, nil
		err := c.round(t.Context())
		if !slices.Equal(broker.retained, want) || !slices.Equal(broker.commits, want) {
			t.Errorf("the broker retains %v and has the progress of %v, want %v for both", broker.retained, broker.commits, want)
		}
		if fails := broker.fail != nil || len(broker.untold) > 0; (err != nil) != fails {
			t.Errorf("the round returned %v, want an error: %v", err, fails)
		}
	}
	round()
	broker.fail = nil
	round("a", "c")
	round()
	clear(broker.untold)
	round("b")
	round()
}
