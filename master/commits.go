package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

const (
	commitEvery  = 5 * time.Second
	commitAgain  = 24 * time.Hour // brokers forget offsets of idle groups after a week
	commitWithin = 20 * time.Second
	lastCommit   = 5 * time.Second // limit of the last round, when the process ends; the first commit of a new group takes the broker a moment
)

// commits sends brokers two positions of each dataset (docs/CUTS.md). Commit is our
// progress, up to the newest bound checkpoint. It is sent if the spec names a consumer
// group or subscription, and only the broker's own tools read it. Retain is where the
// oldest kept checkpoint begins. It is sent if the broker keeps records on request.
type commits struct {
	open Opener
	srv  interface {
		Datasets(context.Context) ([]serve.Dataset, error)
		CommitMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error)
		RetainMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error)
		Moved() <-chan struct{}
	}
	log   *slog.Logger
	every time.Duration

	mu   sync.Mutex // one round at a time
	said map[said]told
	// found has what the store named when this master started, without partitions. An earlier
	// master may have told the broker of it, and nobody remembers what: see back.
	found map[said]bool

	// telling is locked for reading while marks are sent to brokers, and for writing while
	// the subscription of a deleted dataset is removed. Otherwise a round that began before
	// the deletion could make the subscription again.
	telling sync.RWMutex
}

// said names one mark of one partition. commits.said has the position that the broker got last.
type said struct {
	dataset   uint32
	retain    bool   // the retain mark, else the commit
	progress  string // the group or subscription; a new one has got no mark yet
	partition sources.PartitionID
}

type told struct {
	at   sources.Position
	when time.Time
}

// begin notes which datasets an earlier master may have told brokers of. It is called before
// anybody can apply a dataset.
func (c *commits) begin(ctx context.Context) {
	all, err := c.srv.Datasets(ctx)
	if err != nil {
		return // the process ends; the next master begins anew
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = map[said]bool{}
	for i := range all {
		c.found[said{dataset: all[i].ID, retain: true}] = true
		c.found[said{dataset: all[i].ID, progress: progressOf(liveInput(all[i].Spec))}] = true
	}
}

// run commits until ctx ends, and then once more. It commits at once when a checkpoint
// is bound or the job goes back to one, if the broker has had its rest (restAfter).
func (c *commits) run(ctx context.Context) {
	for {
		moved := c.srv.Moved()
		began := time.Now()
		err := c.round(ctx)
		c.warn(err)
		rest := time.Duration(0)
		if err == nil {
			rest = restAfter(0, time.Since(began))
		}
		if !pause(ctx, rest) {
			break
		}
		tick := time.NewTimer(c.every)
		select {
		case <-ctx.Done():
		case <-moved:
		case <-tick.C:
		}
		tick.Stop()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCommit)
	defer cancel()
	c.warn(c.round(last))
}

func (c *commits) warn(err error) {
	if err != nil {
		c.log.Warn("the broker was not told our progress; it is tried again", "error", err)
	}
}

// round sends brokers all marks that have moved. Its error names every dataset whose
// broker could not be reached or refused a mark.
func (c *commits) round(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.telling.RLock()
	defer c.telling.RUnlock()
	all, err := c.srv.Datasets(ctx)
	if err != nil {
		return nil // the shard service ends
	}
	var failed []error
	for i := range all {
		d := &all[i]
		whole := d.Spec
		d.Spec = liveInput(whole)
		if !committed(d.Spec) && !d.Spec.Kind().Retains {
			continue
		}
		if err := c.tell(ctx, d, whole); err != nil && !errors.Is(err, serve.ErrUnknown) && !errors.Is(err, serve.ErrStopped) {
			failed = append(failed, fmt.Errorf("dataset %s: %w", d.Name, err))
		}
	}
	return errors.Join(failed...)
}

func committed(spec *dataset.Spec) bool { return spec.Kind().Commits && progressOf(spec) != "" }

// progressOf returns the group or subscription that shows our progress.
func progressOf(spec *dataset.Spec) string { return spec.Source.Traits().Progress }

// tell sends a dataset's broker the marks that it has not got yet. d.Spec is the input at the
// broker alone; whole is the spec with all inputs. Retain comes before commit, because a commit
// may let the broker delete. If the broker could not retain the records of a partition, that
// partition gets no commit. The others get theirs.
func (c *commits) tell(ctx context.Context, d *serve.Dataset, whole *dataset.Spec) error {
	var retain, commit []sources.Mark
	var err error
	if d.Spec.Kind().Retains {
		if retain, err = c.news(ctx, d, whole, said{dataset: d.ID, retain: true}, c.srv.RetainMarks); err != nil {
			return err
		}
	}
	if committed(d.Spec) {
		if commit, err = c.news(ctx, d, whole, said{dataset: d.ID, progress: progressOf(d.Spec)}, c.srv.CommitMarks); err != nil {
			return err
		}
	}
	if len(retain)+len(commit) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	src, err := c.open(ctx, d.Spec, nil)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // an error of Close takes nothing back
	var failed error
	if len(retain) > 0 {
		to, ok := src.(sources.Retainer)
		if !ok {
			return errors.New("the source cannot keep records from deletion")
		}
		failed = to.Retain(ctx, retain)
		untold, some := errors.AsType[*sources.Untold](failed)
		if failed != nil && !some {
			return failed
		}
		c.remember(without(retain, untold), said{dataset: d.ID, retain: true})
		commit = without(commit, untold)
	}
	if len(commit) > 0 {
		to, ok := src.(sources.Committer)
		if !ok {
			return errors.New("the source keeps no offsets")
		}
		err := to.Commit(ctx, commit)
		untold, some := errors.AsType[*sources.Untold](err)
		if err == nil || some {
			c.remember(without(commit, untold), said{dataset: d.ID, progress: progressOf(d.Spec)})
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// without returns the marks except those of the partitions in untold.
func without(marks []sources.Mark, untold *sources.Untold) []sources.Mark {
	if untold == nil {
		return marks
	}
	return slices.DeleteFunc(slices.Clone(marks), func(m sources.Mark) bool { return untold.Errs[m.Partition] != nil })
}

// news returns the marks that were not sent yet, or were sent so long ago that the broker
// may have forgotten them (commitAgain).
func (c *commits) news(ctx context.Context, d *serve.Dataset, whole *dataset.Spec, to said, marks func(context.Context, uint32) ([]sources.Mark, error)) ([]sources.Mark, error) {
	all, err := marks(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	var news []sources.Mark
	for _, m := range ofLive(whole, all, ofMark) {
		to.partition = m.Partition
		old, any := c.said[to]
		if !any || old.at != m.Position || time.Since(old.when) > commitAgain {
			m.Back = c.back(to, m, old, any)
			news = append(news, m)
		}
	}
	return news, nil
}

// back says whether the broker's mark may go back to m. It may if we told it a later one. An
// earlier master may have done so, too: it ended, or the broker was away, when the job had gone
// back and the broker was not told yet. So the first mark of each partition in the life of a
// master says the truth, whatever the broker has. A dataset that was applied since the master
// started, and a group that it names since, were never told anything: what the broker has is
// somebody else's, or that of a state folder that was lost, and stays until we are further.
func (c *commits) back(to said, m sources.Mark, old told, any bool) bool {
	if any {
		return m.Position.Compare(old.at) < 0
	}
	to.partition = ""
	return c.found[to]
}

func (c *commits) remember(marks []sources.Mark, to said) {
	now := time.Now()
	for _, m := range marks {
		to.partition = m.Partition
		c.said[to] = told{m.Position, now}
	}
}
