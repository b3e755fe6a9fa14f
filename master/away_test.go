package master

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// answers notes what the shard service is told about a dataset's source.
type answers struct {
	sets []serve.Dataset
	told chan string
}

func (a *answers) Datasets(context.Context) ([]serve.Dataset, error) { return a.sets, nil }
func (a *answers) SourceAsked(uint32)                                {}
func (a *answers) SourceSilent(uint32, string)                       { a.told <- "silent" }
func (a *answers) SourceAnswered(uint32)                             { a.told <- "answered" }

func TestAnAwayBucketIsAskedUntilItAnswers(t *testing.T) {
	spec := func(text string) *dataset.Spec {
		s, err := dataset.Parse([]byte(text), "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const files = "name: clicks\nfiles: {root: s3://lake/clicks}\ndecode: lines\n"
	s, away := &shelf{n: 3}, 1
	s.set(func(int64) error { // called with the shelf's lock held
		if away--; away >= 0 {
			return &sources.Temporary{Err: errors.New("nobody is there"), Away: true}
		}
		return nil
	})
	a := &answers{told: make(chan string), sets: []serve.Dataset{
		{ID: 1, Name: "clicks", State: "running", Spec: spec(files)},
		{ID: 2, Name: "live", State: "running", Spec: spec(liveSpec)}, // the guard asks its brokers
		{ID: 3, Name: "ended", State: "done", Spec: spec(files)},
		{ID: 4, Name: "both", State: "running", Spec: spec("name: clicks\nbackfill: {files: {root: s3://lake/clicks}, decode: lines}\n" + strings.TrimPrefix(liveSpec, "name: clicks\n"))},
	}}
	p := &probes{srv: a, log: slog.New(slog.DiscardHandler), told: make(chan uint32, 1), open: s.open}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.run(ctx); close(ended) }()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-a.told:
			if got != want {
				t.Fatalf("the shard service was told %s, want %s", got, want)
			}
		case <-time.After(time.Minute): // only ends a test that fails
			t.Fatalf("the shard service was told nothing in time, want %s", want)
		}
	}
	p.note(1)
	p.note(1)
	next("silent")
	next("answered")
	// The guard asks the sources of these datasets, or nobody needs them. So the probes do not ask.
	asked := len(s.asked)
	for _, id := range []uint32{2, 3, 4, 5} {
		p.until(ctx, id)
	}
	if len(s.asked) != asked {
		t.Errorf("%d sources were asked that the guard asks, or that nobody reads, want none", len(s.asked)-asked)
	}
	cancel()
	<-ended
}

// A broker may need seconds to say where hundreds of partitions end. Then it is asked less often, so
// that it is busy with the answers for at most a fifth of the time.
func TestASourceThatTakesLongToAnswerIsAskedLessOften(t *testing.T) {
	for _, c := range []struct{ every, took, want time.Duration }{
		{time.Second, 10 * time.Millisecond, time.Second},
		{time.Second, 2 * time.Second, 8 * time.Second},
		{0, 2 * time.Second, 8 * time.Second},
		{time.Second, time.Minute, restMost},
		{time.Minute, 20 * time.Second, time.Minute},
	} {
		if got := restAfter(c.every, c.took); got != c.want {
			t.Errorf("asked every %v, answered in %v: the next question comes after %v, want %v", c.every, c.took, got, c.want)
		}
	}
}
