package landing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
)

// slow answers looks at chunks only when as many of them as allowed are under way.
type slow struct {
	storage.Store
	mu        sync.Mutex
	now, most int
	together  chan struct{} // closed when enough looks are under way
	once      sync.Once
}

func (s *slow) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if length != chunk.HeaderSize { // this is no look at a chunk
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
	if store.most != checking {
		t.Errorf("at most %d looks were under way at a time, want %d", store.most, checking)
	}
}

// failing answers the first looks at chunks with an error, so many as times says.
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

// The master cannot look at a chunk for a moment: the storage is busy, the master has no file descriptor
// left, its disk gives EIO, its role's credentials were not renewed. That says nothing of the transaction.
func TestACommitIsTriedAgainIfTheMasterCannotLookAtAChunkNow(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w: 503", storage.ErrPassing),
		&os.PathError{Op: "open", Path: "chunk", Err: syscall.EMFILE},
		&os.PathError{Op: "read", Path: "chunk", Err: syscall.EIO},
		errors.New("the credentials have expired"),
	} {
		s := start(t)
		locators := []string{s.staged(t, "t", 0, lines("a"))}
		s.store = &failing{Store: s.store, times: 1, err: err}
		if _, got := s.Commit(t.Context(), "clicks", "t", locators); !errors.Is(got, ErrNotReady) || errors.Is(got, ErrRefused) {
			t.Errorf("the commit got %v, want ErrNotReady; a writer would give up", got)
		}
		if done, err := s.Commit(t.Context(), "clicks", "t", locators); err != nil || done.Already || done.Records != 1 {
			t.Error(done, err)
		}
	}
}

// A client gives a large commit too little time, so it sends the commit again and again. Each chunk is
// looked at only once.
func TestACommitGoesOnWhenItsCallerGivesUp(t *testing.T) {
	s := start(t)
	const chunks = 20
	var locators []string
	for i := range chunks {
		locators = append(locators, s.staged(t, "t", i%2, lines(fmt.Sprint("record ", i))))
	}
	store := &stopping{Store: s.store, looks: true, at: make(chan string), let: make(chan string)}
	s.store = store
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, "clicks", "t", locators)
		first <- err
	}()
	<-store.at
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("the commit whose caller went away returned %v", err)
	}
	last := make(chan error, 1)
	go func() {
		done, err := s.Commit(t.Context(), "clicks", "t", locators)
		if err == nil && done.Records != chunks {
			err = fmt.Errorf("the commit has %d records, want %d", done.Records, chunks)
		}
		last <- err
	}()
	for looks := 1; ; {
		select {
		case <-store.at:
			looks++
		case store.let <- "":
		case err := <-last:
			if err != nil || looks != chunks {
				t.Errorf("%d looks were made at %d chunks (%v), want one for each", looks, chunks, err)
			}
			return
		}
	}
}

func TestATransactionOfTooManyChunksIsRefused(t *testing.T) {
	s := start(t)
	locator := s.staged(t, "t", 0, lines("a"))
	all := make([]string, mostChunks+1)
	for i := range all {
		all[i] = locator
	}
	const most = "more than 250000 chunks"
	_, err := (&calls{s: s}).Commit(t.Context(), &headracev1.CommitRequest{Dataset: "clicks", Transaction: "t", Locators: all})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), most) {
		t.Errorf("a commit of too many chunks got %v", err)
	}
	body := `{"locators": ["` + strings.Repeat("x", maxCommit) + `"]}`
	if code, a := s.post(t, "/v1/datasets/clicks/transactions/t/commit", "", body); code != http.StatusBadRequest || !strings.Contains(a.Error, most) {
		t.Errorf("a commit of too many chunks over HTTP got %d %.300s", code, a.Error)
	}
}
