package master

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/serve"
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
// stops writes those that wait.
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
	}
}
