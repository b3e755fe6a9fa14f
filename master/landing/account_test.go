package landing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/headrace/headrace/internal/storage"
)

// listing is a store whose lists wait until the test gives an answer.
type listing struct {
	storage.Store
	asked  chan struct{}
	answer chan error
}

func (l *listing) List(ctx context.Context, prefix, after string, most int) ([]storage.Object, error) {
	l.asked <- struct{}{}
	if err := <-l.answer; err != nil {
		return nil, err
	}
	return l.Store.List(ctx, prefix, after, most)
}

func TestABucketThatIsBusyAtTheFirstCallIsAskedAgain(t *testing.T) {
	s := start(t)
	store := &listing{s.store, make(chan struct{}, 100), make(chan error, 2)}
	s.store = store
	busy := fmt.Errorf("%w: 503", storage.ErrPassing)
	store.answer <- busy
	if _, err := s.Stage(t.Context(), "clicks", "t", 0, lines("a")); !errors.Is(err, ErrNotReady) {
		t.Errorf("Stage returned %v, want ErrNotReady; a producer would give up", err)
	}
	store.answer <- busy
	if code, a := s.request(t, http.MethodGet, "/v1/datasets/clicks/layout", "", ""); code != http.StatusServiceUnavailable {
		t.Errorf("the layout page answered %d %+v, want 503", code, a)
	}
	store.answer <- nil
	s.staged(t, "t", 0, lines("a"))
}

// While the chunks of one dataset are listed, calls for other datasets are answered.
func TestOtherDatasetsGoOnWhileOneIsListed(t *testing.T) {
	s := start(t)
	store := &listing{s.store, make(chan struct{}, 100), make(chan error)}
	s.store = store
	first, second := make(chan error, 1), make(chan error, 1)
	ask := func(to chan error) {
		_, err := s.Layout(t.Context(), "clicks")
		to <- err
	}
	go ask(first)
	<-store.asked
	if _, err := s.Layout(t.Context(), "other"); !errors.Is(err, ErrNoDataset) {
		t.Errorf("a call for another dataset got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Layout(ctx, "clicks"); !errors.Is(err, ErrNotReady) && !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that goes away got %v", err)
	}
	go ask(second)
	store.answer <- nil
	for _, c := range []chan error{first, second} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if n := len(store.asked); n > 0 {
		t.Errorf("the dataset was listed %d times more, want once in all", n)
	}
}
