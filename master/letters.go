package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// lettersFolder, in the state folder, gets the dead letters of datasets that name no other
// place.
const lettersFolder = "deadletters"

const lettersAgain = 2 * time.Second // after a failure

// letters writes dead letters where their datasets want them, and then removes them from the
// ledger. If the master ends in between, a letter is written twice, with the same id.
type letters struct {
	srv   *serve.Server
	open  Opener
	state string
	roots []string
	log   *slog.Logger
}

func (k *letters) run(ctx context.Context) {
	for {
		more := k.srv.NewLetters()
		wait := time.Hour
		for {
			some, err := k.round(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				k.log.Error("dead letters cannot be written now; they stay in the state folder", "error", err)
				wait = lettersAgain
				break
			}
			if !some {
				break
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-more:
			if wait == lettersAgain { // after a failure a new letter does not shorten the wait
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// round writes some letters of each dataset. any says whether it wrote some.
func (k *letters) round(ctx context.Context) (any bool, err error) {
	all, err := k.srv.DeadLetters(ctx)
	if err != nil {
		return false, err
	}
	for i := range all {
		d := &all[i]
		if e := k.write(ctx, d); e != nil {
			err = errors.Join(err, fmt.Errorf("dataset %s: %w", d.Dataset, e))
			continue
		}
		err = errors.Join(err, k.srv.LettersWritten(ctx, d.ID, len(d.Letters)))
		any = true
	}
	return any, err
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
