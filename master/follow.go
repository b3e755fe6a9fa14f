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

// following lists a live input until ctx ends or an error is permanent. It waits for a
// source that does not answer.
type following struct {
	*listing
	src    sources.Source
	lower  map[sources.PartitionID]time.Time // since when a head is below one seen before
	silent bool                              // the source did not answer the last question
	joined bool                              // some partitions are known
	looked bool                              // the source has said what is there
	warned bool                              // that the clock was set
	begun  bool                              // the source retains the known partitions (Retainer.Begin)
	gone   []serve.Deletion                  // folded and deleted segments, as reported last; told: they were reported
	told   bool
}

// follow adds partitions as they appear, and tells the shard service where they end. Agents
// report ends too, but only of partitions that they read.
func (l *listing) follow(ctx context.Context, src sources.Source) error {
	f := &following{listing: l, src: src, lower: map[sources.PartitionID]time.Time{}}
	heads, parts := time.NewTimer(l.headsEvery()), time.NewTicker(l.spec.Source.Traits().Refresh)
	defer heads.Stop()
	defer parts.Stop()
	var aged <-chan time.Time
	if every := l.agesEvery(); every > 0 {
		ages := time.NewTicker(every)
		defer ages.Stop()
		aged = ages.C
	}
	var folds <-chan time.Time
	if l.foldEvery() > 0 {
		folds = time.After(min(foldFirst, l.foldEvery()))
	}
	folded := false // once after the first look
	err := f.patient(f.ask(ctx, f.join))
	for err == nil {
		select {
		case <-heads.C:
			do := f.heads
			if !f.joined {
				do = f.join
			}
			began := time.Now()
			asked := f.ask(ctx, do)
			every := l.headsEvery()
			if asked == nil {
				every = restAfter(every, time.Since(began))
			}
			if f.looked && !folded && folds != nil {
				folded, folds = true, time.After(0) // at once: before its first look the source could forget nothing
			}
			heads.Reset(every)
			err = f.patient(asked)
		case <-parts.C:
			err = f.listAgain(ctx)
		case <-aged:
			err = f.patient(f.ask(ctx, f.ages))
		case <-folds:
			began := time.Now()
			more, folded := f.fold(ctx)
			every := l.foldEvery()
			if more { // the other half of the time is left to look for new files
				every = time.Since(began)
			}
			folds = time.After(every)
			err = f.patient(folded)
		case <-l.news: // a change that ends this listing cancels ctx; others do not matter here
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// ask runs join or heads, and notes whether the source answered.
func (f *following) ask(ctx context.Context, do func(context.Context) error) error {
	return ask(f.srv, f.id, func() error { return do(ctx) })
}

// listAgain adds new partitions. Once partitions are known, a listing that succeeds does not end
// the silence of a source; only an answer about heads does. The reason: RocketMQ's name servers
// list the queues of a broker even if that broker hangs.
func (f *following) listAgain(ctx context.Context) error {
	if !f.joined {
		return f.patient(f.ask(ctx, f.join))
	}
	f.srv.SourceAsked(f.id)
	err := f.join(ctx)
	if err == nil {
		if !f.silent {
			f.srv.SourceAnswered(f.id) // the next heads may be asked for half a minute later
		}
		return nil
	}
	if silent(err) {
		f.srv.SourceSilent(f.id, err.Error())
	}
	return f.patient(err)
}

// headsEvery returns how often the source is asked for heads.
func (l *listing) headsEvery() time.Duration {
	if l.cfg.HeadsEvery > 0 {
		return l.cfg.HeadsEvery
	}
	return cmp.Or(l.spec.Kind().HeadsEvery, defaultHeadsEvery)
}

// patient logs a temporary error once and swallows it. Other errors it returns.
func (f *following) patient(err error) error {
	_, temporary := errors.AsType[*sources.Temporary](err)
	switch {
	case temporary && !f.silent:
		f.log.Warn("the source does not answer; it is asked again", "error", err)
	case err == nil && f.silent:
		f.log.Info("the source answers again")
	}
	if f.silent = temporary; temporary {
		return nil
	}
	return err
}

// join adds new partitions, each with the position where reading begins.
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
	first := !f.begun
	if first || len(came) > 0 {
		begin := came
		if first { // including those that an earlier master has begun
			begin = ids
		}
		if err := f.begin(ctx, f.src, begin); err != nil {
			return err
		}
		f.begun = true
	}
	if len(came) == 0 {
		if first {
			return f.ages(ctx)
		}
		return nil
	}
	if j, ok := f.src.(sources.Joiner); ok && len(known) > 0 {
		j.Joined(came)
	}
	parts := newPartitions(f.src, came)
	if !f.spec.Kind().Pushed { // the segments of pushed records come with transactions
		segs, err := sources.FirstSegments(ctx, f.src, came, f.atOnce())
		if err != nil {
			return err
		}
		for i := range parts {
			parts[i].Segments = segs[i]
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
	return f.ages(ctx) // no record of the new partitions is granted before
}

// heads tells where each partition ends now, and lists segments that follow the last
// known one.
func (f *following) heads(ctx context.Context) error {
	ds, err := f.state(ctx) // before Bounds, so that its heads are not newer than the answer
	if err != nil || ds == nil {
		return err
	}
	var grown []*serve.Partition
	var ids []sources.PartitionID
	for i := range ds.Partitions {
		switch p := &ds.Partitions[i]; {
		case p.Growing:
			grown, ids = append(grown, p), append(ids, p.Identity)
		case !p.Complete:
			if err := f.listOn(ctx, p); err != nil {
				return err
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	bounds, err := f.src.Bounds(ctx, ids)
	if err != nil {
		return err
	}
	f.looked = true
	news, unanswered := replaced(ctx, f.src, func(id sources.PartitionID) (ending, bool) {
		for _, p := range grown {
			if p.Identity == id {
				return ending{p.Number, p.LastSegment}, true
			}
		}
		return ending{}, false
	})
	unsure := unanswered != nil
	taken := map[uint32]bool{}
	for _, h := range news {
		taken[h.Partition] = true
	}
	for i, b := range bounds {
		if taken[grown[i].Number] {
			continue // its fallen head is in news already; the new one follows next time
		}
		h, err := f.reaches(ctx, grown[i], b, unsure)
		_, temporary := errors.AsType[*sources.Temporary](err)
		switch {
		case temporary:
			unanswered = err
		case err != nil:
			return fmt.Errorf("partition %s: %w", grown[i].Label, err)
		case h != nil:
			news = append(news, *h)
		}
	}
	if len(news) > 0 {
		if err := f.srv.Heads(ctx, news); err != nil {
			return err
		}
	}
	return unanswered
}

// reaches returns the new end of a partition, or nil if there is nothing new to tell. If
// the end is lower than before, a new leader may know less for a moment. If it stays
// lower (HeadPatience), records are lost. unsure says that the source could not compare its
// records with those seen before. Then a lower end is not believed yet: otherwise records that
// were replaced above it would never be reported.
func (f *following) reaches(ctx context.Context, p *serve.Partition, b sources.Bounds, unsure bool) (*serve.Head, error) {
	if b.Err != nil {
		return nil, b.Err
	}
	now := serve.Head{Partition: p.Number, Segment: p.LastSegment, End: b.Head.Offset}
	before := sources.Position{Segment: p.LastSegment, Offset: p.Head}
	switch {
	case b.Head.Segment > p.LastSegment:
		return nil, f.rolled(ctx, p)
	case b.Head.Compare(before) < 0 && (!f.fell(p, b.Head) || unsure):
		return nil, nil
	case b.Head.Segment < p.LastSegment:
		return nil, fmt.Errorf("the source reaches to offset %d of segment %d now, and segment %d was there before: delete the dataset and apply it again",
			b.Head.Offset, b.Head.Segment, p.LastSegment)
	case b.Head.Offset < p.Head:
		now.Fallen = true
		return &now, nil
	}
	delete(f.lower, p.Identity)
	if b.Head.Offset == p.Head {
		return nil, nil
	}
	return &now, nil
}

// fell says whether a head has been lower than before for longer than HeadPatience.
func (f *following) fell(p *serve.Partition, at sources.Position) bool {
	since, before := f.lower[p.Identity]
	if !before {
		f.lower[p.Identity] = time.Now()
		f.log.Warn("a partition reaches less far than before; waiting for its leader", "partition", p.Label, "segment", at.Segment, "head", at.Offset, "before", p.Head)
		return false
	}
	return time.Since(since) >= f.cfg.HeadPatience
}
