package sources

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// together is a source that answers only when it has been asked for all its partitions, or for as many as
// may be asked for at once.
type together struct {
	Source
	asked chan PartitionID
	go_   chan struct{}
}

func (s *together) Segments(ctx context.Context, p PartitionID, after int64, max int) ([]Segment, error) {
	s.asked <- p
	select {
	case <-s.go_:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p == "bad" {
		return nil, errors.New("no such partition")
	}
	return []Segment{{ID: int64(max), Name: string(p)}}, nil
}

func TestFirstSegmentsAsksAboutManyPartitionsAtOnceAndKeepsTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = firstAtOnce + 3
		s := &together{asked: make(chan PartitionID, n), go_: make(chan struct{})}
		var parts []PartitionID
		for i := range n {
			parts = append(parts, PartitionID(fmt.Sprint(i)))
		}
		go func() {
			synctest.Wait()
			if len(s.asked) != firstAtOnce {
				t.Errorf("%d partitions were asked about at once, want %d", len(s.asked), firstAtOnce)
			}
			close(s.go_)
		}()
		all, err := FirstSegments(t.Context(), s, parts, 7)
		if err != nil {
			t.Fatal(err)
		}
		for i, segs := range all {
			if len(segs) != 1 || segs[0].Name != string(parts[i]) || segs[0].ID != 7 {
				t.Errorf("partition %s has segments %+v", parts[i], segs)
			}
		}
	})
}

func TestFirstSegmentsGivesTheErrorOfThePartitionThatHasOne(t *testing.T) {
	s := &together{asked: make(chan PartitionID, 3), go_: make(chan struct{})}
	close(s.go_)
	if _, err := FirstSegments(t.Context(), s, []PartitionID{"a", "bad"}, 1); err == nil || err.Error() != "no such partition" {
		t.Errorf("the error is %v", err)
	}
}
