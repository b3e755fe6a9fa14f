package landing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/storage"
)

// stopping is a store whose deletions, or looks at chunks, wait for let. It sends the key of the chunk
// to at before it waits.
type stopping struct {
	storage.Store
	looks   bool
	at, let chan string
}

func (s *stopping) Delete(ctx context.Context, keys ...string) error {
	if !s.looks && len(keys) > 0 {
		s.at <- keys[0]
		<-s.let
	}
	return s.Store.Delete(ctx, keys...)
}

func (s *stopping) Stat(ctx context.Context, key string) (storage.Object, error) {
	if s.looks {
		s.at <- key
		<-s.let
	}
	return s.Store.Stat(ctx, key)
}

func TestCommitsGoOnWhileStagedChunksAreDeleted(t *testing.T) {
	s := start(t)
	began := time.Now()
	s.now = func() time.Time { return began }
	var late []string // locators
	for i := range 3 {
		late = append(late, s.staged(t, "late", 0, lines(fmt.Sprint("record ", i))))
	}
	s.now = func() time.Time { return began.Add(61 * time.Minute) }
	store := &stopping{Store: s.store, at: make(chan string), let: make(chan string)}
	s.store = store
	cleaned := make(chan error, 1)
	go func() { cleaned <- s.clean(t.Context()) }()
	for range late { // all of them are deleted at the same time
		<-store.at
	}
	// Meanwhile other transactions land, but no commit may have a chunk that is being deleted.
	if done, err := s.Commit(t.Context(), "clicks", "new", []string{s.staged(t, "new", 1, lines("b"))}); err != nil || done.Already {
		t.Errorf("the commit of another transaction got %+v (%v)", done, err)
	}
	s.now = func() time.Time { return began } // the clock goes back, so the commit is not refused for their age
	if _, err := s.Commit(t.Context(), "clicks", "late", late); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("a commit of chunks that are being deleted got %v", err)
	}
	close(store.let)
	if err := <-cleaned; err != nil || s.held(t) != 1 {
		t.Errorf("after the deletion there are %d chunks (%v), want 1", s.held(t), err)
	}
}

func TestAChunkThatIsBeingCommittedIsNotDeleted(t *testing.T) {
	s := start(t)
	var late atomic.Bool
	s.now = func() time.Time {
		if late.Load() {
			return time.Now().Add(61 * time.Minute)
		}
		return time.Now()
	}
	mine, other := s.staged(t, "mine", 0, lines("a")), s.staged(t, "other", 0, lines("b"))
	store := &stopping{Store: s.store, looks: true, at: make(chan string), let: make(chan string)}
	s.store = store
	committed := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), "clicks", "mine", []string{mine})
		committed <- err
	}()
	<-store.at
	late.Store(true)
	if err := s.clean(t.Context()); err != nil || s.held(t) != 1 {
		t.Fatalf("%d chunks are left (%v), want 1: only %s may be deleted", s.held(t), err, other)
	}
	close(store.let)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if err := s.clean(t.Context()); err != nil || s.held(t) != 1 {
		t.Fatalf("%d chunks are left (%v), want the one that is visible", s.held(t), err)
	}
}

// unheard is a store whose first answers to deletions are lost. It deletes all the same.
type unheard struct {
	storage.Store
	mu    sync.Mutex
	times int
}

func (u *unheard) Delete(ctx context.Context, keys ...string) error {
	err := u.Store.Delete(ctx, keys...)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.times--; u.times >= 0 {
		return errors.New("the answer is lost")
	}
	return err
}

// The answer to a deletion is lost, but the chunk is deleted. When the deletion is tried again, its
// bytes do not count any more.
func TestADeletionWithoutAnAnswerGivesItsBytesBack(t *testing.T) {
	s := start(t)
	l := &settled{Ledger: s.srv, segments: 2}
	s.srv = l
	for i := range 3 {
		s.pushed(t, fmt.Sprint("t", i), 0)
	}
	s.staged(t, "never", 0, lines("x"))
	for _, when := range []string{"trained on", "staged"} {
		s.store = &unheard{Store: s.store, times: 1}
		if err := s.clean(t.Context()); err == nil {
			t.Fatalf("%s: clean succeeded, though an answer was lost", when)
		}
		if err := s.clean(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	}
	if got, err := s.Layout(t.Context(), "clicks"); err != nil || s.held(t) != 1 || got.Stored != int64(len(lines("t2"))) {
		t.Errorf("%d bytes are counted, %v; %d chunks are there", got.Stored, err, s.held(t))
	}
}
