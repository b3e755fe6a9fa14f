package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

const (
	guardWithin = 30 * time.Second // one look at all partitions of a dataset
	warnAgain   = 10 * time.Minute
	brokenAgain = 5 * time.Minute // between two warnings that the broker cannot be asked
)

// kept is the part of the shard service (serve.Server) that the guard uses.
type kept interface {
	Changed() <-chan struct{}
	Datasets(context.Context) ([]serve.Dataset, error)
	Needed(ctx context.Context, dataset uint32) ([]serve.Need, error)
	Segments(ctx context.Context, partition uint32, after int64, max int) ([]sources.Segment, error)
	Truncated(ctx context.Context, partition uint32, segment, start, end int64, reason string) error
	SetRetention(dataset uint32, all []serve.Retention)
	Heads(context.Context, []serve.Head) error
	NoteDeleted(dataset uint32, found []serve.Deletion)
	ForgetDeleted(dataset uint32)
	asked
}

// guard watches the distance between the oldest needed records and the place where the
// broker deletes. It runs one goroutine, a watch, per dataset whose source deletes.
type guard struct {
	open Opener
	srv  kept
	log  *slog.Logger
	live map[uint32]*watch
	wg   sync.WaitGroup
}

// guarded says whether a dataset's source deletes records by itself and can say when.
func guarded(ds *serve.Dataset) bool { return ds.Spec.Kind().Foretells }

// foreseen says whether deletions of a dataset are forecast. They are not when the dataset
// is done, because then only a rewind needs its records. They are not with virtual ranks
// either, because their positions are not places in a partition of the broker. In both cases
// the guard only reports records that are deleted already.
func foreseen(ds *serve.Dataset) bool { return ds.Spec.BitExact == nil && ds.State != serve.Done }

// run returns when ctx or the shard service ends.
func (g *guard) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer g.wg.Wait()
	defer cancel()
	for {
		changed := g.srv.Changed()
		all, err := g.srv.Datasets(ctx)
		if err != nil {
			return
		}
		g.reconcile(ctx, all)
		next := time.NewTimer(time.Second) // no event says that a dataset is done
		select {
		case <-ctx.Done():
		case <-changed:
		case <-next.C:
		}
		next.Stop()
	}
}

func (g *guard) reconcile(ctx context.Context, all []serve.Dataset) {
	wanted := map[uint32]bool{}
	for i := range all {
		ds := &all[i]
		if !guarded(ds) {
			continue
		}
		wanted[ds.ID] = true
		w := g.live[ds.ID]
		if w != nil && sameSpec(w.whole, ds.Spec) && w.foresees == foreseen(ds) {
			continue
		}
		if w != nil {
			w.end()
			g.srv.SetRetention(ds.ID, nil)
		}
		w = &watch{open: g.open, srv: g.srv, id: ds.ID, whole: ds.Spec, spec: liveInput(ds.Spec), foresees: foreseen(ds), log: g.log.With("dataset", ds.Name),
			seen: map[uint32]*partitionWatch{}, ended: make(chan struct{})}
		var own context.Context
		own, w.cancel = context.WithCancel(ctx)
		g.live[ds.ID] = w
		g.wg.Go(func() {
			defer close(w.ended)
			w.run(own)
		})
	}
	for id, w := range g.live {
		if !wanted[id] {
			w.end()
			g.srv.SetRetention(id, nil)
			g.srv.ForgetDeleted(id)
			delete(g.live, id)
		}
	}
}

// watch is the guard of one dataset.
type watch struct {
	open     Opener
	srv      kept
	log      *slog.Logger
	id       uint32
	whole    *dataset.Spec
	spec     *dataset.Spec // of the input that is guarded
	cancel   context.CancelFunc
	foresees bool // deletions are forecast (foreseen)
	ended    chan struct{}

	seen   map[uint32]*partitionWatch
	broken time.Time // of the last warning that the broker cannot be asked
}

type partitionWatch struct {
	ruler   ruler
	glances glances
	warned  time.Time // zero: all is well
	told    time.Duration
}

// end waits until the watch has ended: two watches of one dataset would contradict each
// other.
func (w *watch) end() {
	w.cancel()
	<-w.ended
}

func (w *watch) run(ctx context.Context) {
	var src sources.Source
	closed := func() {
		if src != nil {
			_ = src.Close()
		}
		src = nil
	}
	defer func() { closed() }()
	for {
		needs, err := w.srv.Needed(ctx, w.id)
		needs = ofLive(w.whole, needs, ofNeed)
		switch {
		case err != nil || len(needs) == 0:
			w.srv.SetRetention(w.id, nil)
			closed()
		default:
			err = w.asks(ctx, func() (err error) {
				if src == nil {
					if src, err = w.opened(ctx, needs); err != nil {
						return err
					}
				}
				return w.round(ctx, src, needs)
			})
			// After a permanent error the source is opened again, because the dataset may
			// have another spec by now. After a temporary error it stays open and keeps what
			// it has found out. A source of pushed records is opened again each time: it
			// knows only the chunks that were there when it was opened.
			if _, temporary := errors.AsType[*sources.Temporary](err); err != nil && !temporary || w.spec.Kind().Pushed {
				closed()
			}
		}
		if err != nil && ctx.Err() == nil && time.Since(w.broken) > brokenAgain {
			if errors.Is(err, serve.ErrUnknown) || errors.Is(err, serve.ErrStopped) {
				return
			}
			w.broken = time.Now()
			w.log.Warn("it is not known how long the broker keeps unread records; it is asked again", "error", err)
		}
		if err == nil {
			w.broken = time.Time{}
		}
		every := time.Duration(w.spec.Guard.Every)
		if _, silent := errors.AsType[*sources.Temporary](err); silent && w.foresees {
			every = min(every, silentAgain) // to notice soon that it answers again
		}
		if !pause(ctx, every) {
			return
		}
	}
}

// asks runs a round. It notes whether the source answers only while the dataset is read.
func (w *watch) asks(ctx context.Context, round func() error) error {
	if !w.foresees {
		return round()
	}
	err := ask(w.srv, w.id, round)
	if ctx.Err() != nil {
		w.srv.SourceAnswered(w.id) // it is not asked any more
	}
	return err
}

// round looks once at every partition that still has needed records.
func (w *watch) round(ctx context.Context, src sources.Source, needs []serve.Need) error {
	ctx, cancel := context.WithTimeout(ctx, guardWithin)
	defer cancel()
	keeper, ok := src.(sources.Keeper)
	if !ok {
		return errors.New("the source does not say what it deletes")
	}
	if !w.foresees {
		return w.begins(ctx, keeper, needs)
	}
	marks := make([]sources.Mark, len(needs))
	for i, n := range needs {
		marks[i] = sources.Mark{Partition: sources.PartitionID(n.Identity), Position: sources.Position{Segment: n.Segment, Offset: n.Offset}}
	}
	warn := time.Duration(w.spec.Guard.Warn)
	all, err := keeper.Keeps(ctx, marks, warn)
	if err != nil {
		return err
	}
	segs := make([][]sources.Segment, len(needs))
	for i := range all {
		if all[i].Err != nil {
			continue
		}
		from := min(needs[i].Segment, all[i].Low.Segment)
		if w.spec.Kind().Pushed { // its table is trimmed, so few of its segments are deleted ones
			from = 0
		}
		if segs[i], err = w.srv.Segments(ctx, needs[i].Partition, from-1, 0); err != nil {
			return err
		}
	}
	unsure := w.compare(ctx, src, needs, segs) // reported with note's error: one queue that does not answer must not hide what the others say
	err = errors.Join(w.note(marks, all, segs), unsure)
	var out []serve.Retention
	for i := range all {
		k, need := &all[i], &needs[i]
		if k.Err != nil {
			continue
		}
		p := w.watched(need.Partition, segs[i])
		if at := marks[i].Position; at.Compare(k.Low) < 0 {
			why := fmt.Sprintf("the source's log of %s begins at %s now (retention, or deleted records), as the master sees it", need.Label, place(at, k.Low))
			for _, lost := range p.ruler.pieces(at, k.Low) {
				if err := w.srv.Truncated(ctx, need.Partition, lost.Segment, lost.Start, lost.End, why); err != nil {
					return err
				}
			}
		}
		o := w.partition(p, need, k, warn)
		out = append(out, serve.Retention{Partition: need.Partition, Identity: need.Identity, Label: need.Label, Records: sources.InUnits(w.spec.Kind().Unit, o.records), Left: o.left, By: o.by,
			Warn: o.warn, Blind: k.Blind})
	}
	w.srv.SetRetention(w.id, out)
	return err
}

// place returns a position for people: its offset, and its segment if from has another one.
func place(from, to sources.Position) string {
	if from.Segment == to.Segment {
		return fmt.Sprint(to.Offset)
	}
	return fmt.Sprintf("offset %d of segment %d", to.Offset, to.Segment)
}

// watched returns what is remembered of a partition, with its present segments.
func (w *watch) watched(no uint32, segs []sources.Segment) *partitionWatch {
	p := w.seen[no]
	if p == nil {
		p = &partitionWatch{}
		w.seen[no] = p
	}
	var fresh bool
	if p.ruler, fresh = p.ruler.next(segs); fresh {
		p.glances = nil
	}
	return p
}

// partition adds a look, makes the forecast, and logs a warning that begins or ends.
func (w *watch) partition(p *partitionWatch, need *serve.Need, k *sources.Kept, warn time.Duration) outlook {
	end := int64(sources.Never)
	if n := len(p.ruler.segs); n > 0 && need.End <= p.ruler.segs[n-1].End {
		end = p.ruler.at(sources.Position{Segment: p.ruler.segs[n-1].ID, Offset: need.End})
	}
	p.glances.add(glance{time.Now(), p.ruler.at(k.Low), p.ruler.at(k.Head), p.ruler.at(sources.Position{Segment: need.Segment, Offset: need.Offset})})
	o := foresee(k, p.glances, end, warn)
	switch {
	case !o.warn && !p.warned.IsZero():
		p.warned = time.Time{}
		w.log.Info("the source will not delete unread records soon any more", "partition", need.Label, "left", o.text())
	case o.warn && (p.warned.IsZero() || o.left < p.told/2 || time.Since(p.warned) > warnAgain):
		p.warned, p.told = time.Now(), o.left
		args := []any{"partition", need.Label, "oldest_needed", need.Offset, "log_begins", k.Low.Offset, "head", k.Head.Offset,
			"records_before_it", sources.InUnits(w.spec.Kind().Unit, o.records), "left", o.text(), "by", o.by, "on_loss", w.spec.OnLoss}
		if o.catchUp > 0 {
			args = append(args, "catching_up_takes", o.catchUp.Round(time.Second).String())
		}
		w.log.Warn("the source may soon delete records that are not read yet: add trainers, or let it keep them longer", args...)
	}
	return o
}

func (o *outlook) text() string {
	if o.left == sources.Never {
		return "always"
	}
	return o.left.Round(100 * time.Millisecond).String()
}
