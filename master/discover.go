package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/headrace/headrace/internal/dataset"
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
	AddSegmentsAfter(ctx context.Context, partition uint32, after int64, segments []sources.Segment, complete bool) error
	Join(ctx context.Context, dataset uint32, parts []serve.NewPartition) error
	Heads(ctx context.Context, heads []serve.Head) error
	Fail(ctx context.Context, dataset uint32, reason string) error
	asked
}

// discovery runs one goroutine, a listing, for each dataset that is not listed to its end. It
// starts and stops them as datasets are added, changed and deleted.
type discovery struct {
	cfg  Config
	srv  ledger
	log  *slog.Logger
	tell *sync.RWMutex // commits.telling
	done chan uint32   // a listing of this dataset has ended
	live map[uint32]*listing
	wg   sync.WaitGroup
}

func newDiscovery(cfg Config, srv ledger, tell *sync.RWMutex) *discovery {
	return &discovery{cfg: cfg, srv: srv, log: cfg.Logger, tell: tell, done: make(chan uint32), live: map[uint32]*listing{}}
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
	present := map[uint32]bool{}
	for i := range all {
		ds := &all[i]
		present[ds.ID] = true
		l := d.live[ds.ID]
		switch {
		case l == nil && needsListing(ds):
			d.start(ctx, ds)
		case l != nil && (!needsListing(ds) || !sameSpec(l.spec, ds.Spec)):
			l.cancel() // when it has ended, it is started again if the dataset still needs it
		case l != nil:
			l.wake(ds)
		}
	}
	for id, l := range d.live {
		if !present[id] {
			l.cancel()
		}
	}
}

func needsListing(ds *serve.Dataset) bool {
	if ds.State == "failed" || ds.State == "done" {
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

// start starts a listing. When it has ended, it sends its dataset on done, and run forgets it.
func (d *discovery) start(all context.Context, ds *serve.Dataset) {
	ctx, cancel := context.WithCancel(all)
	l := &listing{
		cfg: d.cfg, srv: d.srv, tell: d.tell, id: ds.ID, spec: ds.Spec, cancel: cancel,
		log: d.log.With("dataset", ds.Name), news: make(chan *serve.Dataset, 1),
	}
	l.wake(ds)
	d.live[ds.ID] = l
	d.wg.Go(func() {
		defer cancel()
		l.run(ctx)
		select {
		case d.done <- l.id:
		case <-all.Done(): // run has returned
		}
	})
}
