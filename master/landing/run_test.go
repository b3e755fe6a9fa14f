package landing

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
)

// hanging is a bucket that does not answer some calls until their context ends.
type hanging struct {
	bucket
	at    chan struct{} // closed when a call hangs
	lists string        // lists of this prefix hang; "": none
	stats bool
	puts  string // puts below this prefix hang; "": none
}

func (h *hanging) hang(ctx context.Context, yes bool) error {
	if !yes {
		return nil
	}
	select {
	case <-h.at:
	default:
		close(h.at)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) List(ctx context.Context, prefix, after string, most int) ([]storage.Object, error) {
	if err := h.hang(ctx, h.lists != "" && strings.HasPrefix(prefix, h.lists)); err != nil {
		return nil, err
	}
	return h.bucket.List(ctx, prefix, after, most)
}

func (h *hanging) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := h.hang(ctx, h.stats); err != nil {
		return storage.Object{}, err
	}
	return h.bucket.Stat(ctx, key)
}

func (h *hanging) Put(ctx context.Context, key string, data []byte) error {
	if err := h.hang(ctx, h.puts != "" && strings.HasPrefix(key, h.puts)); err != nil {
		return err
	}
	return h.bucket.Put(ctx, key, data)
}

// When Run returns, no commit is under way, and none begins any more. Run returns even if the bucket
// hangs and callers wait for it. The callers are answered.
func TestRunEndsWhatIsUnderWayAlthoughTheBucketHangs(t *testing.T) {
	for what, hangs := range map[string]hanging{
		"commit": {stats: true}, "commit, noting": {puts: "visible/"}, "landed, noting": {puts: "visible/"}, "landed, recalling": {lists: "visible/"},
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			s.every = time.Hour
			locators := []string{s.staged(t, "t", 0, lines("a"))}
			plain := bucket{s.store}
			p, err := s.place(t.Context(), "clicks")
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.account(t.Context(), p.stream)
			if err != nil {
				t.Fatal(err)
			}
			if hangs.lists == "" {
				if err := s.recall(t.Context(), p, a); err != nil {
					t.Fatal(err)
				}
			}
			commit := strings.HasPrefix(what, "commit")
			if what == "landed, noting" { // the transaction is visible, but has no note
				s.store = noNotes{plain}
				if _, err := s.Commit(t.Context(), "clicks", "t", locators); !errors.Is(err, ErrNotReady) {
					t.Fatal(err)
				}
			}
			hangs.bucket, hangs.at = plain, make(chan struct{})
			s.store = &hangs
			answered := make(chan error, 1)
			go func() {
				var err error
				if commit {
					_, err = s.Commit(t.Context(), "clicks", "t", locators)
				} else {
					_, _, err = s.Landed(t.Context(), "clicks", "t")
				}
				answered <- err
			}()
			<-hangs.at
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { s.Run(ctx); close(ended) }()
			stop()
			select {
			case <-ended:
			case <-time.After(5 * time.Minute):
				t.Fatal("Run does not return")
			}
			s.mu.Lock()
			under := len(a.commits)
			s.mu.Unlock()
			if under > 0 {
				t.Errorf("Run has returned, but %d commits are under way", under)
			}
			select {
			case err := <-answered:
				if !errors.Is(err, serve.ErrStopped) {
					t.Errorf("the caller got %v, want ErrStopped", err)
				}
			case <-time.After(5 * time.Minute):
				t.Fatal("the caller was not answered in time")
			}
			s.store = plain
			if _, err := s.Commit(t.Context(), "clicks", "t2", nil); !errors.Is(err, serve.ErrStopped) {
				t.Errorf("after Run has returned, a commit got %v, want ErrStopped", err)
			}
		})
	}
}

// noNotes is a bucket in which no note can be written.
type noNotes struct{ bucket }

func (n noNotes) Put(ctx context.Context, key string, data []byte) error {
	if strings.HasPrefix(key, "visible/") {
		return storage.ErrPassing
	}
	return n.bucket.Put(ctx, key, data)
}

// whole is a store whose lists without a prefix wait until the test gives an error or nil.
type whole struct {
	storage.Store
	answers chan error
	lists   atomic.Int32
}

func (w *whole) List(ctx context.Context, prefix, after string, most int) ([]storage.Object, error) {
	if prefix == "" {
		w.lists.Add(1)
		select {
		case err := <-w.answers:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w.Store.List(ctx, prefix, after, most)
}

// run starts Run. stop ends it and waits for its end.
func (s *Service) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	return func() {
		t.Helper()
		cancel()
		select {
		case <-ended:
		case <-time.After(5 * time.Minute):
			t.Fatal("Run does not return")
		}
	}
}

// gone waits until a chunk is deleted.
func (s *Service) gone(t *testing.T, store storage.Store, key string) {
	t.Helper()
	deadline, tick := time.After(2*time.Minute), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := store.Stat(t.Context(), key); errors.Is(err, storage.ErrNotFound) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("chunk %s is still there", key)
		}
	}
}

func TestAListOfTheStorageThatFailsIsTriedAgain(t *testing.T) {
	s := start(t)
	s.every, s.again = time.Millisecond, time.Millisecond
	store := &whole{Store: s.store, answers: make(chan error, 3)}
	for _, err := range []error{storage.ErrPassing, storage.ErrPassing, nil} {
		store.answers <- err
	}
	key := chunk.NewKey("sgone", 0, "t", time.Now()).String()
	if err := s.store.Put(t.Context(), key, lines("b")); err != nil {
		t.Fatal(err)
	}
	s.store = store
	stop := s.run(t)
	s.gone(t, store.Store, key)
	stop()
	if n := store.lists.Load(); n != 3 { // after a list that succeeds, the next one comes only after hours
		t.Errorf("the storage was listed %d times, want 3", n)
	}
}

func TestChunksAreDeletedWhileTheStorageIsListed(t *testing.T) {
	s := start(t)
	s.every = time.Millisecond
	locator := s.staged(t, "never", 0, lines("a"))
	l, _, err := chunk.ParseLocator(locator)
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	store := &whole{Store: s.store, answers: make(chan error)} // its lists never get an answer
	s.store = store
	stop := s.run(t)
	s.gone(t, store.Store, l.Key)
	stop()
}
