package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// ledger is the part of the shard service (serve.Server) that discovery uses.
type ledger interface {
	Changed() <-chan struct{}
	Datasets(context.Context) ([]serve.Dataset, error)
	Segments(ctx context.Context, partition uint32, after int64, max int) ([]sources.Segment, error)
	AddPartitions(ctx context.Context, dataset uint32, parts []serve.NewPartition, estimated bool) ([]uint32, error)
	PartitionsListed(ctx context.Context, dataset uint32) error
	AddSegments(ctx context.Context, partition uint32, after int64, segments []sources.Segment, complete bool) error
	Join(ctx context.Context, dataset uint32, parts []serve.NewPartition) error
	Heads(ctx context.Context, heads []serve.Head) error
	Aged(ctx context.Context, all []serve.Old) error
	Fail(ctx context.Context, dataset uint32, reason string) error
	RetainMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error)
	Fold(ctx context.Context, partition uint32, before int64, needed []int64) error
	NoteDeleted(dataset uint32, found []serve.Deletion)
	SetDeleted(dataset uint32, found []serve.Deletion)
	ForgetDeleted(dataset uint32)
	asked
}

// discovery runs one goroutine, a listing, for each input that is not listed to its end. It
// starts and stops them as datasets are added, changed and deleted.
type discovery struct {
	cfg  Config
	srv  ledger
	log  *slog.Logger
	tell *sync.RWMutex // commits.telling
	// clock is compared with the times of records (catch_up.drop_older_than).
	clock wallclock.Clock
	done  chan inputID // a listing of this input has ended
	live  map[inputID]*listing
	folds map[uint32]bool // datasets whose listings tell what is deleted
	wg    sync.WaitGroup
}

// inputID names an input.
type inputID struct {
	dataset uint32
	input   int
}

func newDiscovery(cfg Config, srv ledger, tell *sync.RWMutex) *discovery {
	return &discovery{cfg: cfg, srv: srv, log: cfg.Logger, tell: tell, clock: wallclock.System(), done: make(chan inputID), live: map[inputID]*listing{}, folds: map[uint32]bool{}}
}

// run returns nil when ctx ends, or when the shard service does.
func (d *discovery) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer cancel()
	for {
		changed := d.srv.Changed()
		all, err := d.srv.Datasets(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, serve.ErrStopped) {
				return nil
			}
			return err
		}
		d.reconcile(ctx, all)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case id := <-d.done:
			delete(d.live, id)
		}
	}
}

func (d *discovery) reconcile(ctx context.Context, all []serve.Dataset) {
	present := map[inputID]bool{}
	for i := range all {
		for _, in := range inputsOf(&all[i]) {
			id := inputID{in.ID, in.no}
			present[id] = true
			l := d.live[id]
			switch {
			case l == nil && needsListing(&in.Dataset):
				d.start(ctx, &in)
			case l != nil && (!needsListing(&in.Dataset) || !sameSpec(l.spec, in.Spec)):
				l.cancel() // when it has ended, it is started again if the dataset still needs it
			case l != nil:
				l.wake(&in.Dataset)
			}
		}
	}
	is := map[uint32]bool{}
	for i := range all {
		is[all[i].ID] = true
	}
	for id, l := range d.live {
		is[id.dataset] = true // its listing may still report deletions
		if !present[id] {
			l.cancel()
		}
	}
	for id := range d.folds {
		if !is[id] { // until then deletions stay known, also while the dataset is not listed
			d.srv.ForgetDeleted(id)
			delete(d.folds, id)
		}
	}
}

func needsListing(ds *serve.Dataset) bool {
	if ds.State == serve.Failed || ds.State == serve.Done {
		return false
	}
	if !ds.PartitionsKnown {
		return true
	}
	for _, p := range ds.Partitions {
		if !p.Complete {
			return true
		}
	}
	return false
}

func sameSpec(a, b *dataset.Spec) bool {
	ja, errA := a.JSON()
	jb, errB := b.JSON()
	return errA == nil && errB == nil && bytes.Equal(ja, jb)
}

// start starts a listing. When it has ended, it sends its input on done, and run forgets it.
func (d *discovery) start(all context.Context, in *input) {
	ctx, cancel := context.WithCancel(all)
	l := &listing{
		cfg: d.cfg, srv: d.srv, tell: d.tell, clock: d.clock, id: in.ID, input: in.no, alone: in.alone, spec: in.Spec, cancel: cancel,
		log: d.log.With("dataset", in.Name), news: make(chan *serve.Dataset, 1),
	}
	if !in.alone {
		l.log = l.log.With("input", in.Spec.Kind().Name)
	}
	if l.foldEvery() > 0 {
		d.folds[l.id] = true
	}
	l.wake(&in.Dataset)
	d.live[inputID{l.id, l.input}] = l
	d.wg.Go(func() {
		defer cancel()
		l.run(ctx)
		select {
		case d.done <- inputID{l.id, l.input}:
		case <-all.Done(): // run has returned
		}
	})
}
