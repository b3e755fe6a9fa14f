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

// hanging is a bucket that does not answer some of its calls before their context ends.
type hanging struct {
	bucket
	at    chan struct{} // closed when one hangs
	lists string        // those of a prefix; "": none
	stats bool
	puts  string // those of a prefix; "": none
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

// When Run returns, no commit is under way, and none begins. It returns although a bucket
// hangs and the callers wait: they are ended after it.
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
			if what == "landed, noting" { // its commit was visible and not noted
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
			case <-time.After(2 * time.Minute):
				t.Fatal("Run does not return")
			}
			s.mu.Lock()
			under := len(a.commits)
			s.mu.Unlock()
			if under > 0 {
				t.Errorf("%d commits are under way", under)
			}
			select {
			case err := <-answered:
				if !errors.Is(err, serve.ErrStopped) {
					t.Errorf("its caller is told %v", err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("its caller is not answered")
			}
			s.store = plain
			if _, err := s.Commit(t.Context(), "clicks", "t2", nil); !errors.Is(err, serve.ErrStopped) {
				t.Errorf("a commit begins: %v", err)
			}
		})
	}
}

// noNotes is a bucket that does not take notes.
type noNotes struct{ bucket }

func (n noNotes) Put(ctx context.Context, key string, data []byte) error {
	if strings.HasPrefix(key, "visible/") {
		return storage.ErrPassing
	}
	return n.bucket.Put(ctx, key, data)
}

// whole is a store whose lists of everything wait for an answer: an error, or nil.
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

// run runs it until the test says stop, which waits for its end.
func (s *Service) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	return func() {
		t.Helper()
		cancel()
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
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
	if n := store.lists.Load(); n != 3 { // the next one comes after hours
		t.Errorf("the storage was listed %d times", n)
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
	store := &whole{Store: s.store, answers: make(chan error)} // it has no answer
	s.store = store
	stop := s.run(t)
	s.gone(t, store.Store, l.Key)
	stop()
}
