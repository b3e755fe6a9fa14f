package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// unwritten is a shard service that has waiting dead letters of one dataset. It gives out two at a time.
type unwritten struct {
	spec *dataset.Spec
	wait []shardsvc.Letter
	err  error
}

func (u *unwritten) NewLetters() <-chan struct{} { return make(chan struct{}) }

func (u *unwritten) DeadLetters(ctx context.Context) ([]serve.DeadLetters, error) {
	if err := errors.Join(ctx.Err(), u.err); err != nil || len(u.wait) == 0 {
		return nil, err
	}
	return []serve.DeadLetters{{ID: 1, Dataset: "clicks", Spec: u.spec, Letters: u.wait[:min(2, len(u.wait))]}}, nil
}

func (u *unwritten) LettersWritten(ctx context.Context, _ uint32, n int) error {
	u.wait = u.wait[n:]
	return ctx.Err()
}

// A user of `headrace run` reads the folder of dead letters when the job has ended. So a master that
// stops writes those that wait. (It has 5 s for that, here of the bubble's clock: a busy machine may
// give this process no CPU for longer.)
func TestAMasterThatIsStoppedWritesTheDeadLettersThatWait(t *testing.T) {
	for _, c := range []struct {
		what  string
		cause error // why the master ends
		err   error // the shard service fails with it
		left  int   // how many of five letters stay unwritten
		logs  bool
	}{
		{"it is stopped", nil, nil, 0, false},
		{"it has failed: its state folder may be another one's", errors.New("the state folder was replaced"), nil, 5, false},
		{"the shard service has ended", nil, serve.ErrStopped, 5, false},
		{"the shard service fails", nil, errors.New("no space left on device"), 5, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			spec, err := dataset.Parse([]byte("name: clicks\nfiles: {root: /data}\ndecode: lines\n"), "")
			if err != nil {
				t.Fatal(err)
			}
			u := &unwritten{spec: spec, wait: make([]shardsvc.Letter, 5), err: c.err}
			for i := range u.wait {
				u.wait[i].Start = int64(i)
			}
			var log bytes.Buffer
			k := &letters{srv: u, state: t.TempDir(), log: slog.New(slog.NewTextHandler(&log, nil))}
			ctx, stop := context.WithCancelCause(t.Context())
			stop(c.cause)
			k.run(ctx)
			lines, _, err := k.read(spec, 0, 100)
			if err != nil || len(lines) != 5-c.left || len(u.wait) != c.left {
				t.Errorf("%s: %d letters are written and %d wait (%v), want %d to wait", c.what, len(lines), len(u.wait), err, c.left)
			}
			if strings.Contains(log.String(), "they stay in the state folder") != c.logs {
				t.Errorf("%s: the log says %q", c.what, log.String())
			}
		})
	}
}

// endsMeanwhile is an unwritten whose master is stopped while the first letters are being written.
type endsMeanwhile struct {
	unwritten
	stop func()
}

func (e *endsMeanwhile) LettersWritten(ctx context.Context, id uint32, n int) error {
	e.stop()
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.unwritten.LettersWritten(ctx, id, n)
}

func TestAMasterThatIsStoppedWhileItWritesLettersWritesEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec, err := dataset.Parse([]byte("name: clicks\nfiles: {root: /data}\ndecode: lines\n"), "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancelCause(t.Context())
		e := &endsMeanwhile{unwritten{spec: spec, wait: make([]shardsvc.Letter, 5)}, func() { stop(nil) }}
		k := &letters{srv: e, state: t.TempDir(), log: slog.New(slog.DiscardHandler)}
		k.run(ctx)
		if lines, _, err := k.read(spec, 0, 100); err != nil || len(lines) != 5 || len(e.wait) != 0 {
			t.Errorf("%d letters are written of 5, and %d wait (%v)", len(lines), len(e.wait), err)
		}
	})
}

// twoWithLetters is a shard service that has waiting dead letters of two datasets.
type twoWithLetters struct {
	mu    sync.Mutex
	specs [2]*dataset.Spec
	wait  [2]int
	none  chan struct{} // closed when all letters of the second dataset are written
}

func (u *twoWithLetters) NewLetters() <-chan struct{} { return make(chan struct{}) }

func (u *twoWithLetters) DeadLetters(ctx context.Context) (all []serve.DeadLetters, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, n := range u.wait {
		if n > 0 {
			all = append(all, serve.DeadLetters{ID: uint32(i), Dataset: u.specs[i].Name, Spec: u.specs[i], Letters: make([]shardsvc.Letter, min(256, n))})
		}
	}
	return all, ctx.Err()
}

func (u *twoWithLetters) LettersWritten(ctx context.Context, id uint32, n int) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.wait[id] -= n; id == 1 && u.wait[id] == 0 {
		close(u.none)
	}
	return ctx.Err()
}

// The topic for dead letters of one dataset is away: its broker does not answer. The letters of another dataset go to
// files all the same, while the master runs and when it ends. Letters that wait would stop that dataset.
func TestLettersOfADatasetDoNotWaitForThoseOfAnother(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			u := &twoWithLetters{wait: [2]int{1, 2000}, none: make(chan struct{})}
			for i, name := range []string{"away", "here"} {
				spec, err := dataset.Parse([]byte("name: "+name+"\nfiles: {root: /data}\ndecode: lines\n"), "")
				if err != nil {
					t.Fatal(err)
				}
				u.specs[i] = spec
			}
			u.specs[0].DeadLetter = &dataset.DeadLetter{Topic: "dead"}
			k := &letters{srv: u, state: t.TempDir(), log: slog.New(slog.DiscardHandler), open: func(ctx context.Context, _ *dataset.Spec, _ []sources.Segment) (sources.Source, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if ends {
				stop()
			}
			done := make(chan struct{})
			go func() { defer close(done); k.run(ctx) }()
			select {
			case <-u.none:
			case <-time.After(time.Hour): // of the bubble's clock
				t.Errorf("the master ends: %v. %d letters of the other dataset still wait", ends, u.wait[1])
			}
			stop()
			<-done
		})
	}
}
