package master

import (
	"context"
	"log/slog"
	"sync"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// probes ask the sources that agents could not reach, until they answer. So status and
// metrics show since when a source is away. Probes ask only for datasets whose files are
// listed once, in a bucket or on a network file system. Brokers are asked by the guard
// anyway, and a folder that grows is asked by its listing. Probes do not change what the
// guard and the listing have noted.
type probes struct {
	open func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error)
	srv  interface {
		Datasets(context.Context) ([]serve.Dataset, error)
		asked
	}
	log  *slog.Logger
	told chan uint32 // datasets; see note
}

// note says that an agent could not reach the source of a dataset. It returns at once. If
// the channel is full, the note is dropped; the agent's next try brings another one.
func (p *probes) note(dataset uint32) {
	select {
	case p.told <- dataset:
	default:
	}
}

// run returns when ctx ends.
func (p *probes) run(ctx context.Context) {
	var (
		wg   sync.WaitGroup
		done = make(chan uint32)
		live = map[uint32]bool{}
	)
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-done:
			delete(live, id)
		case id := <-p.told:
			if live[id] {
				continue
			}
			live[id] = true
			wg.Go(func() {
				p.until(ctx, id)
				select {
				case done <- id:
				case <-ctx.Done():
				}
			})
		}
	}
}

// until asks a source until it answers.
func (p *probes) until(ctx context.Context, id uint32) {
	for asked := false; ; asked = true {
		in := p.input(ctx, id)
		if in == nil {
			if asked {
				p.srv.SourceAnswered(id) // it is not asked any more
			}
			return
		}
		err := ask(p.srv, id, func() error { return p.first(ctx, in.Spec) })
		if ctx.Err() != nil || !silent(err) {
			return
		}
		p.log.Debug("the source does not answer", "dataset", in.Name, "error", err)
		if !pause(ctx, silentAgain) {
			return
		}
	}
}

// input returns the input of a dataset that probes may ask. It returns nil if the dataset is
// not read now, has a second input, or is asked by the guard or by its listing.
func (p *probes) input(ctx context.Context, id uint32) *input {
	all, err := p.srv.Datasets(ctx)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].ID != id || all[i].State == serve.Failed || all[i].State == serve.Done {
			continue
		}
		// With a backfill the guard asks for the dataset, and it may be the broker that is away.
		if in := inputsOf(&all[i]); len(in) == 1 && in[0].Spec.Kind().Paths && !in[0].Spec.Live() {
			return &in[0]
		}
	}
	return nil
}

// first lists the first file.
func (p *probes) first(ctx context.Context, spec *dataset.Spec) error {
	src, err := p.open(ctx, spec, nil)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	all, err := src.Partitions(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	_, err = src.Segments(ctx, all[0], -1, 1)
	return err
}
