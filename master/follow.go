package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// following is the listing of input without an end. It goes on until ctx ends or
// something is wrong for good; a source that does not answer is waited for.
type following struct {
	*listing
	src    sources.Source
	lower  map[sources.PartitionID]time.Time // since when a head is below one seen before
	silent bool                              // the source did not answer the last time
	joined bool                              // some partitions are known
}

// follow makes partitions known as they come, and tells the shard service how far
// they reach. Agents tell it too, as they read; what nobody reads is seen here.
func (l *listing) follow(ctx context.Context, src sources.Source) error {
	f := &following{listing: l, src: src, lower: map[sources.PartitionID]time.Time{}}
	heads, parts := time.NewTicker(l.headsEvery()), time.NewTicker(l.spec.Source.Traits().Refresh)
	defer heads.Stop()
	defer parts.Stop()
	err := f.patient(f.join(ctx))
	for err == nil {
		select {
		case <-heads.C:
			do := f.heads
			if !f.joined {
				do = f.join
			}
			err = f.patient(do(ctx))
		case <-parts.C:
			err = f.patient(f.join(ctx))
		case <-l.news: // a state that does not end this is no matter
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// headsEvery is how often heads are looked for.
func (l *listing) headsEvery() time.Duration {
	if l.cfg.HeadsEvery > 0 {
		return l.cfg.HeadsEvery
	}
	return cmp.Or(l.spec.Kind().HeadsEvery, defaultHeadsEvery)
}

// patient forgives what another try may mend, and says so once.
func (f *following) patient(err error) error {
	_, temporary := errors.AsType[*sources.Temporary](err)
	switch {
	case temporary && !f.silent:
		f.log.Warn("the source does not answer; trying on", "error", err)
	case err == nil && f.silent:
		f.log.Info("the source answers again")
	}
	if f.silent = temporary; temporary {
		return nil
	}
	return err
}

// join makes new partitions known, each with where it is read from.
func (f *following) join(ctx context.Context) error {
	ids, err := f.src.Partitions(ctx)
	if err != nil {
		return err
	}
	ds, err := f.state(ctx)
	if err != nil || ds == nil {
		return err
	}
	known := map[sources.PartitionID]bool{}
	for i := range ds.Partitions {
		known[ds.Partitions[i].Identity] = true
	}
	var came []sources.PartitionID
	for _, id := range ids {
		if !known[id] {
			came = append(came, id)
		}
	}
	f.joined = len(known) > 0
	if len(came) == 0 {
		return nil
	}
	if j, ok := f.src.(sources.Joiner); ok && len(known) > 0 {
		j.Joined(came)
	}
	parts := newPartitions(f.src, came)
	for i, id := range came {
		if parts[i].Segments, err = f.src.Segments(ctx, id, -1, 1); err != nil {
			return err
		}
	}
	if err := f.srv.Join(ctx, f.id, parts); err != nil {
		return err
	}
	f.joined = true
	if len(known) == 0 {
		f.log.Info("partitions found", "partitions", len(came))
	} else {
		f.log.Info("partitions joined", "partitions", len(came), "known_before", len(known))
	}
	return nil
}

// heads tells how far each partition reaches now. One that reaches less far than it
// did may have a new leader that knows less for a moment; if it stays so, records
// are gone.
func (f *following) heads(ctx context.Context) error {
	ds, err := f.state(ctx) // first: what is asked for later is not older
	if err != nil || ds == nil {
		return err
	}
	var grown []*serve.Partition
	var ids []sources.PartitionID
	for i := range ds.Partitions {
		if p := &ds.Partitions[i]; p.Growing {
			grown, ids = append(grown, p), append(ids, p.Identity)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	bounds, err := f.src.Bounds(ctx, ids)
	if err != nil {
		return err
	}
	var news []serve.Head
	var unanswered error
	for i, b := range bounds {
		p, at := grown[i], b.Head.Offset
		switch _, temporary := errors.AsType[*sources.Temporary](b.Err); {
		case temporary:
			unanswered = b.Err
		case b.Err != nil:
			return fmt.Errorf("partition %s: %w", p.Label, b.Err)
		case at < p.Head:
			if f.fell(p, at) {
				news = append(news, serve.Head{Partition: p.Number, Segment: p.LastSegment, End: at, Fallen: true})
			}
		default:
			delete(f.lower, p.Identity)
			if at > p.Head {
				news = append(news, serve.Head{Partition: p.Number, Segment: p.LastSegment, End: at})
			}
		}
	}
	if len(news) > 0 {
		if err := f.srv.Heads(ctx, news); err != nil {
			return err
		}
	}
	return unanswered
}

// fell says whether a head is lower for so long that it will stay so.
func (f *following) fell(p *serve.Partition, at int64) bool {
	since, before := f.lower[p.Identity]
	if !before {
		f.lower[p.Identity] = time.Now()
		f.log.Warn("a partition reaches less far than before; waiting for its leader", "partition", p.Label, "head", at, "before", p.Head)
		return false
	}
	return time.Since(since) >= f.cfg.HeadPatience
}
