package brokers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/sources"
)

type queue string

func (q queue) String() string { return "clicks/" + string(q) }

func TestAPartitionIsFoundByListingAgain(t *testing.T) {
	var l List[queue]
	lists := 0
	list := func(context.Context) ([]sources.PartitionID, error) {
		lists++
		l.Put("b", "1")
		return nil, nil
	}
	for range 2 {
		if p, err := l.Find(t.Context(), "b", list, "is unknown"); err != nil || p != "1" || lists != 1 {
			t.Fatalf("found %q after %d lists: %v", p, lists, err)
		}
	}
	if _, err := l.Find(t.Context(), "c", list, "is unknown"); err == nil || err.Error() != "c is unknown" {
		t.Errorf("finding a partition that does not exist: %v", err)
	}
	if a, b := l.PartitionName("b"), l.PartitionName("c"); a != "clicks/1" || b != "c" {
		t.Errorf("names %q and %q", a, b)
	}
	if l.Joined([]sources.PartitionID{"b"}); !l.HasJoined("b") || l.HasJoined("c") {
		t.Error("only b has joined, but HasJoined says otherwise")
	}
	if err := l.Usable(t.Context()); err != nil {
		t.Error(err)
	}
	if l.MarkClosed(); !errors.Is(l.Usable(t.Context()), ErrClosed) {
		t.Error("a closed source is usable")
	}
}

// Listing hundreds of partitions may take hundreds of requests. Callers that look for a partition at the
// same time share one listing.
func TestPartitionsThatAreFoundAtOnceAreListedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l List[queue]
		lists := 0
		list := func(context.Context) ([]sources.PartitionID, error) {
			lists++
			time.Sleep(time.Second) // on the clock of synctest
			l.Put("b", "1")
			return nil, nil
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if p, err := l.Find(t.Context(), "b", list, "is unknown"); err != nil || p != "1" {
					t.Errorf("found %q: %v", p, err)
				}
			})
		}
		synctest.Wait() // until one of them lists
		gone, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := l.Find(gone, "b", list, "is unknown"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that has gone got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		all.Wait()
		if lists != 1 {
			t.Errorf("listed %d times", lists)
		}
	})
}

// If a source does not answer, one failed listing fails for all callers that wait for it. If the caller
// that lists has given up, the next one lists.
func TestAListingThatFailsFailsForAllWhoWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l List[queue]
		away := errors.New("away")
		lists := 0
		list := func(ctx context.Context) ([]sources.PartitionID, error) {
			lists++
			select {
			case <-time.After(time.Second): // on the clock of synctest
				return nil, away
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := l.Find(gone, "b", list, "is unknown"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that has gone got %v", err)
			}
		})
		synctest.Wait() // until it lists
		for range 8 {
			all.Go(func() {
				if _, err := l.Find(t.Context(), "b", list, "is unknown"); !errors.Is(err, away) {
					t.Errorf("found although the source is away: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		if lists != 2 {
			t.Errorf("listed %d times", lists)
		}
	})
}

func TestTheFirstOfAPartitionsNamesCounts(t *testing.T) {
	e, err := EndOf("kafka", "latest", map[string]int64{"3": 7, "clicks/3": 9})
	if err != nil || e.At != Latest {
		t.Fatal(e, err)
	}
	if at, given := e.Of("clicks/3", "3"); at != 9 || !given {
		t.Error(at, given)
	}
	if at, given := e.Of("views/3", "3"); at != 7 || !given {
		t.Error(at, given)
	}
	if _, given := e.Of("views/4", "4"); given {
		t.Error("a place was found, but none was given")
	}
	if _, err := EndOf[int64]("kafka", "soon", nil); err == nil {
		t.Error("soon is no end")
	}
}

func TestTheEndOfAConnectionIsNotTheEndOfARange(t *testing.T) {
	err := fmt.Errorf("reading: %w", io.EOF)
	if got := NotTheEnd(err); errors.Is(got, io.EOF) || got.Error() != err.Error() {
		t.Errorf("got %v, which must keep its text and not be io.EOF", got)
	}
}

func TestLongerCountsFromItsFirstCall(t *testing.T) {
	var since time.Time
	if Longer(&since, time.Hour) || since.IsZero() {
		t.Error("the first call did not start the time")
	}
	if since = since.Add(-2 * time.Hour); !Longer(&since, time.Hour) {
		t.Error("two hours are not longer than one")
	}
}

func TestSparesAreKeptUpToTheirCapacity(t *testing.T) {
	s := make(Spares, 1)
	s.Keep(make([]byte, 3, 10))
	s.Keep(make([]byte, 3, 20)) // too much: it is dropped
	if a, b := s.Take(), s.Take(); cap(a) != 10 || len(a) != 0 || b != nil {
		t.Errorf("kept %d bytes, then %v", cap(a), b)
	}
}

// An end that was found once stays. If two calls look for it at the same time, the first result counts. A
// sealed segment without a record is not listed; a live one is.
func TestWhereAPartitionEndsIsFoundOnce(t *testing.T) {
	var s Segments
	looks := 0
	end := func(g sources.Segment) func() error {
		return func() error {
			looks++
			s.End("p", g)
			s.End("p", sources.Segment{ID: 9, Start: 90, End: 99, Sealed: true}) // the slower call
			return nil
		}
	}
	s.Put("p", sources.Segment{ID: 0, End: 10, Sealed: true})
	if some, err := s.After("p", -1, 1, end(sources.Segment{})); err != nil || len(some) != 1 || looks != 0 {
		t.Errorf("with an end already known: %v, %v after %d looks", some, err, looks)
	}
	for range 2 {
		some, err := s.After("p", 0, 5, end(sources.Segment{ID: 1, Start: 10, End: 30, Sealed: true}))
		if err != nil || len(some) != 1 || some[0].End != 30 || looks != 1 {
			t.Errorf("%v, %v after %d looks", some, err, looks)
		}
	}
	s.End("empty", sources.Segment{Start: 5, End: 5, Sealed: true})
	s.End("live", sources.Segment{Start: 5, End: 5})
	if len(s.Of("empty")) != 0 || len(s.Of("live")) != 1 || len(s.Of("p")) != 2 {
		t.Errorf("%v, %v, %v", s.Of("empty"), s.Of("live"), s.Of("p"))
	}
	failed := errors.New("the broker is gone")
	if _, err := s.After("q", -1, 1, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got the error %v, want %v", err, failed)
	}
}
