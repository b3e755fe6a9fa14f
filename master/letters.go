package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// lettersFolder, in the state folder, gets the dead letters of datasets that name no other
// place.
const lettersFolder = "deadletters"

const (
	lettersAgain = 2 * time.Second // after a failure
	lastLetters  = 5 * time.Second // at the end of the process
)

// letters writes dead letters where their datasets want them, and then removes them from the
// ledger. If the master ends in between, a letter is written twice, with the same id.
type letters struct {
	srv interface {
		NewLetters() <-chan struct{}
		DeadLetters(context.Context) ([]serve.DeadLetters, error)
		LettersWritten(ctx context.Context, dataset uint32, n int) error
	}
	open  Opener
	state string
	roots []string
	log   *slog.Logger
}

// run writes letters until ctx ends, and then those that still wait: the master of `headrace run`
// ends with its trainers, and it may be long until there is another one. A master that has failed
// writes no more. Its state folder may be another job's by now.
func (k *letters) run(ctx context.Context) {
	k.follow(ctx)
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLetters)
	defer cancel()
	if err := k.rest(last); err != nil && !errors.Is(err, serve.ErrStopped) {
		k.warn(err)
	}
}

func (k *letters) warn(err error) {
	k.log.Error("dead letters cannot be written now; they stay in the state folder", "error", err)
}

// follow writes letters as they come, until ctx ends. Each dataset has its own writer, and after
// a failure its own pause: a broker that is away stops no other dataset's letters.
func (k *letters) follow(ctx context.Context) {
	var writers sync.WaitGroup
	defer writers.Wait()
	busy, free := map[uint32]bool{}, make(chan uint32)
	for {
		more := k.srv.NewLetters()
		wait := time.Hour
		all, err := k.srv.DeadLetters(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			k.warn(err)
			wait, more = lettersAgain, nil
		}
		for i := range all {
			d := &all[i]
			if busy[d.ID] {
				continue
			}
			busy[d.ID] = true
			writers.Go(func() {
				if err := k.some(ctx, d); err != nil && ctx.Err() == nil {
					k.warn(err)
					pause(ctx, lettersAgain)
				}
				select {
				case free <- d.ID:
				case <-ctx.Done():
				}
			})
		}
		timer := time.NewTimer(wait)
		select {
		case <-more:
		case id := <-free:
			delete(busy, id) // there may be more letters of it
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// rest writes all letters that wait, those of all datasets at the same time.
func (k *letters) rest(ctx context.Context) error {
	all, err := k.srv.DeadLetters(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	var writers sync.WaitGroup
	for i := range all {
		writers.Go(func() { errs[i] = k.all(ctx, all[i]) })
	}
	writers.Wait()
	return errors.Join(errs...)
}

// all writes d and the letters of its dataset after it.
func (k *letters) all(ctx context.Context, d serve.DeadLetters) error {
	for {
		if err := k.some(ctx, &d); err != nil {
			return err
		}
		all, err := k.srv.DeadLetters(ctx)
		i := slices.IndexFunc(all, func(x serve.DeadLetters) bool { return x.ID == d.ID })
		if err != nil || i < 0 {
			return err
		}
		d = all[i]
	}
}

// some writes some letters of a dataset, and removes them from the ledger.
func (k *letters) some(ctx context.Context, d *serve.DeadLetters) error {
	if err := k.write(ctx, d); err != nil {
		return fmt.Errorf("dataset %s: %w", d.Dataset, err)
	}
	// Also if ctx has ended meanwhile: else they would be written twice.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLetters)
	defer cancel()
	return k.srv.LettersWritten(ctx, d.ID, len(d.Letters))
}

func (k *letters) write(ctx context.Context, d *serve.DeadLetters) error {
	lines, keys := make([][]byte, len(d.Letters)), make([][]byte, len(d.Letters))
	for i := range d.Letters {
		l := &d.Letters[i]
		out := deadletter.Letter{Dataset: d.Dataset, Partition: l.Identity, Label: l.Label, Pass: l.Pass, Segment: l.Segment, Name: l.SegmentName,
			Offset: l.Start, End: l.End, Column: l.Column, Kind: l.Kind, Reason: l.Reason, Size: l.Size, Value: l.Value, Key: l.Key, Form: l.Form}
		out.Fill(l.When)
		line, err := out.Encode()
		if err != nil {
			return err
		}
		lines[i], keys[i] = line, []byte(out.ID)
	}
	if at := d.Spec.DeadLetter; at != nil && at.Topic != "" {
		return k.post(ctx, d.Spec, at.Topic, keys, lines)
	}
	at, err := k.folder(d.Spec)
	if err != nil {
		return err
	}
	return at.Append(d.Dataset, lines)
}

// folder returns the folder of a dataset's letters.
func (k *letters) folder(spec *dataset.Spec) (deadletter.Folder, error) {
	if at := spec.DeadLetter; at != nil && at.Files != "" {
		return deadletter.FolderIn(k.roots, at.Files)
	}
	return deadletter.FolderIn([]string{k.state}, filepath.Join(k.state, lettersFolder))
}

// read reads letters back. It is serve.Config.ReadLetters.
func (k *letters) read(spec *dataset.Spec, from int64, most int) ([][]byte, int64, error) {
	at, err := k.folder(spec)
	if err != nil {
		return nil, 0, err
	}
	return at.Read(spec.Name, from, most)
}

func (k *letters) post(ctx context.Context, spec *dataset.Spec, topic string, keys, lines [][]byte) error {
	spec = liveInput(spec)
	src, err := k.open(ctx, spec, nil)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	to, ok := src.(sources.Poster)
	if !ok {
		return fmt.Errorf("a source of %s has no topics for dead letters", spec.Kind().Name)
	}
	return to.Post(ctx, topic, keys, lines)
}
