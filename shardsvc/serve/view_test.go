package serve

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc"
)

// A caller whose context ends while the loop is busy returns at once. The loop runs the call's
// function later. If that function writes a value that the caller reads, the race detector
// reports it.
func TestACallerThatHasGoneReadsNothingThatTheLoopStillWrites(t *testing.T) {
	srv, err := New(Config{Store: memstore.New(), Job: "job", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(running) }()
	busy, goOn, free := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		free <- srv.view(running, func(*loop) { close(busy); <-goOn })
	}()
	<-busy
	var (
		waiting int
		leaves  []context.CancelFunc
		wg      sync.WaitGroup
	)
	for name, ask := range map[string]func(context.Context) (any, error){
		"Needed":        func(ctx context.Context) (any, error) { return srv.Needed(ctx, 1) },
		"CommitMarks":   func(ctx context.Context) (any, error) { return srv.CommitMarks(ctx, 1) },
		"RetainMarks":   func(ctx context.Context) (any, error) { return srv.RetainMarks(ctx, 1) },
		"Segments":      func(ctx context.Context) (any, error) { return srv.Segments(ctx, 1, 0, 1) },
		"AddPartitions": func(ctx context.Context) (any, error) { return srv.AddPartitions(ctx, 1, nil, false) },
		"Datasets":      func(ctx context.Context) (any, error) { return srv.Datasets(ctx) },
		"Ready":         func(ctx context.Context) (any, error) { return srv.Ready(ctx) },
		"goneOf": func(ctx context.Context) (any, error) {
			srv.deletions.mu.Lock()
			srv.deletions.of = map[uint32][]Deletion{1: {{}}}
			srv.deletions.mu.Unlock()
			return srv.goneOf(ctx, &shardsvc.CutInfo{})
		},
	} {
		ctx, leave := context.WithCancel(context.Background())
		leaves = append(leaves, leave)
		wg.Go(func() { // nothing orders its reads and the loop's writes
			if _, err := ask(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: %v", name, err)
			}
		})
		for waiting++; len(srv.inbox) < waiting; { // the loop has not taken it
			runtime.Gosched()
		}
	}
	for _, leave := range leaves {
		leave()
	}
	close(goOn)
	wg.Wait()
	if err := errors.Join(<-free, srv.view(running, func(*loop) {})); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
