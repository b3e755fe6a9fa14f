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

// answers notes what was told of a dataset's source.
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
	s.set(func(int64) error { // asked under its lock
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
	go func() { p.run(ctx); close(ended) }() // waited for below
	next := func(want string) {
		t.Helper()
		select {
		case got := <-a.told:
			if got != want {
				t.Fatalf("told %s, want %s", got, want)
			}
		case <-time.After(time.Minute): // only ends a hang
			t.Fatalf("nothing was told, want %s", want)
		}
	}
	p.note(1)
	p.note(1)
	next("silent")
	next("answered")
	// The sources of these are not asked, and nothing is noted: what the guard knows stays.
	asked := len(s.asked)
	for _, id := range []uint32{2, 3, 4, 5} {
		p.until(ctx, id)
	}
	if len(s.asked) != asked {
		t.Errorf("%d sources were asked that others ask, or that nobody reads", len(s.asked)-asked)
	}
	cancel()
	<-ended
}

// Of hundreds of partitions a broker needs seconds to say where they end. It is asked less
// often then, so that we take a fifth of its time.
func TestASourceThatTakesLongToAnswerIsAskedLessOften(t *testing.T) {
	for _, c := range []struct{ every, took, want time.Duration }{
		{time.Second, 10 * time.Millisecond, time.Second},
		{time.Second, 2 * time.Second, 8 * time.Second},
		{0, 2 * time.Second, 8 * time.Second},
		{time.Second, time.Minute, restMost},
		{time.Minute, 20 * time.Second, time.Minute},
	} {
		if got := restAfter(c.every, c.took); got != c.want {
			t.Errorf("asked every %v, answered in %v: the next question comes after %v, not %v", c.every, c.took, got, c.want)
		}
	}
}
