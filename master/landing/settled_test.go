package landing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// goingBack says that all segments are trained on, until somebody goes back to the start.
type goingBack struct {
	*settled
	mu    sync.Mutex
	back  bool
	asked int             // so often the marks were asked for
	at    int             // somebody goes back before the marks are asked for so often
	low   map[int64]int64 // what was noted as deleted, by segment
}

func (l *goingBack) goBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = true
}

func (l *goingBack) RetainMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked++; l.asked == l.at || l.back {
		l.back, l.segments = true, 0
	}
	return l.settled.RetainMarks(ctx, dataset)
}

func (l *goingBack) NoteDeleted(dataset uint32, found []serve.Deletion) {
	for _, d := range found {
		l.low[d.Segment] = d.Low
	}
	l.settled.NoteDeleted(dataset, found)
}

func startGoingBack(t *testing.T, chunks int) (*Service, *goingBack) {
	t.Helper()
	s := start(t)
	l := &goingBack{settled: &settled{Ledger: s.srv, segments: int64(chunks)}, low: map[int64]int64{}}
	s.srv = l
	var locators []string
	for i := range chunks {
		locators = append(locators, s.staged(t, "t", 0, lines(fmt.Sprint("record ", i))))
	}
	if _, err := s.Commit(t.Context(), "clicks", "t", locators); err != nil {
		t.Fatal(err)
	}
	return s, l
}

// rewinding is a bucket in which somebody rewinds the dataset to its start while a chunk is deleted.
type rewinding struct {
	storage.Store
	l *goingBack
}

func (r *rewinding) Delete(ctx context.Context, keys ...string) error {
	r.l.goBack()
	return r.Store.Delete(ctx, keys...)
}

func TestARewindKeepsTheChunksThatAreNotBeingDeleted(t *testing.T) {
	s, l := startGoingBack(t, batch+10)
	s.store = &rewinding{Store: s.store, l: l}
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.held(t); left != 10 {
		t.Errorf("somebody went back to the start while the first of %d chunks was deleted; %d are left, want all but the %d that were being deleted", batch+10, left, batch)
	}
	noted := 0
	for _, low := range l.low {
		noted += int(low) // of each chunk with one record
	}
	if noted != batch {
		t.Errorf("%d chunks are noted as deleted, want %d", noted, batch)
	}
}

func TestARewindBeforeTheNoteKeepsAllChunks(t *testing.T) {
	s, l := startGoingBack(t, 5)
	l.at = 2
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.held(t); left != 5 {
		t.Errorf("somebody went back to the start before anything was noted; %d of 5 chunks are left", left)
	}
	for i := range int64(5) {
		if low, noted := l.low[i]; !noted || low != 0 {
			t.Errorf("chunk %d is noted as deleted up to %d (%v), want a note that was taken back", i, low, noted)
		}
	}
}

// together lets a chunk be deleted when a chunk of each partition is being deleted.
type together struct {
	storage.Store
	mu   sync.Mutex
	now  map[string]int // deletions under way, by partition
	of   int
	all  chan struct{} // closed when chunks of so many partitions are being deleted
	seen []string
}

func (d *together) Delete(ctx context.Context, keys ...string) error {
	part := strings.Join(strings.Split(keys[0], "/")[:2], "/")
	d.mu.Lock()
	d.seen = append(d.seen, keys[0])
	if d.now[part]++; d.now[part] > 1 {
		d.mu.Unlock()
		return errors.New("two chunks of one partition are deleted at the same time")
	}
	if len(d.now) == d.of {
		select {
		case <-d.all:
		default:
			close(d.all)
		}
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.now[part]--
	}()
	select {
	case <-d.all:
	case <-time.After(5 * time.Minute):
		return errors.New("no chunk of another partition is deleted meanwhile")
	}
	return d.Store.Delete(ctx, keys...)
}

func TestChunksOfSeveralPartitionsAreDeletedSideBySide(t *testing.T) {
	s := start(t)
	s.srv = &settled{Ledger: s.srv, segments: 3}
	for i := range 6 {
		s.pushed(t, fmt.Sprint("t", i), i%2)
	}
	s.store = &together{Store: s.store, now: map[string]int{}, of: 2, all: make(chan struct{})}
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.held(t) != 0 {
		t.Errorf("%d chunks are left", s.held(t))
	}
}
