package landing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
)

// slow answers a look only when as many looks as it waits for are under way.
type slow struct {
	storage.Store
	mu        sync.Mutex
	now, most int
	together  chan struct{} // closed when enough have come
	once      sync.Once
}

func (s *slow) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if length != chunk.HeaderSize { // not a look at a chunk
		return s.Store.Get(ctx, key, offset, length)
	}
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	if s.now == checking {
		s.once.Do(func() { close(s.together) })
	}
	s.mu.Unlock()
	<-s.together
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	return s.Store.Get(ctx, key, offset, length)
}

func TestChunksOfACommitAreLookedAtSideBySide(t *testing.T) {
	s := start(t)
	var locators []string
	for i := range 3 * checking {
		locators = append(locators, s.staged(t, "t", i%2, lines(fmt.Sprint("record ", i))))
	}
	store := &slow{Store: s.store, together: make(chan struct{})}
	s.store = store
	done, err := s.Commit(t.Context(), "clicks", "t", locators)
	if err != nil || done.Records != 3*checking {
		t.Fatal(done, err)
	}
	if store.most != checking { // all of them at first, and never more
		t.Errorf("%d looks at a time, and %d are wanted", store.most, checking)
	}
}

// failing answers looks with an error, as often as it says.
type failing struct {
	storage.Store
	err   error
	mu    sync.Mutex
	times int
}

func (f *failing) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.times > 0 && length == chunk.HeaderSize {
		f.times--
		return nil, f.err
	}
	return f.Store.Get(ctx, key, offset, length)
}

func TestAStorageThatIsBusyAtTheCommitIsAskedAgain(t *testing.T) {
	s := start(t)
	locators := []string{s.staged(t, "t", 0, lines("a"))}
	s.store = &failing{Store: s.store, times: 1, err: fmt.Errorf("%w: 503", storage.ErrPassing)}
	if _, err := s.Commit(t.Context(), "clicks", "t", locators); !errors.Is(err, ErrNotReady) {
		t.Fatalf("%v; a writer would give up", err)
	}
	if done, err := s.Commit(t.Context(), "clicks", "t", locators); err != nil || done.Already || done.Records != 1 {
		t.Fatal(done, err)
	}
}
