package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/proof/child"
)

// states gives each dataset a state, and notes which are resumed.
type states struct {
	headracev1.DatasetsClient
	of      map[string]string
	resumed []string
}

func (s *states) Describe(_ context.Context, q *headracev1.DescribeRequest, _ ...grpc.CallOption) (*headracev1.Dataset, error) {
	return &headracev1.Dataset{State: s.of[q.Name]}, nil
}

func (s *states) Resume(_ context.Context, q *headracev1.ResumeRequest, _ ...grpc.CallOption) (*headracev1.ResumeReply, error) {
	s.resumed = append(s.resumed, q.Name)
	return &headracev1.ResumeReply{}, nil
}

func TestADatasetThatWasPausedAndIsDoneIsResumedToo(t *testing.T) {
	s := &states{of: map[string]string{"a": "paused", "b": "done", "c": "failed", "d": "running"}}
	c := &crew{books: &books{api: s}}
	for _, name := range []string{"a", "b", "c", "d"} {
		c.inputs = append(c.inputs, &input{name: name})
	}
	if err := (&trouble{crew: c}).resumeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b"}; !slices.Equal(s.resumed, want) {
		t.Errorf("resumed: %q, want %q", s.resumed, want)
	}
}

func (s *states) Pause(_ context.Context, q *headracev1.PauseRequest, _ ...grpc.CallOption) (*headracev1.PauseReply, error) {
	if s.of[q.Name] == "running" {
		s.of[q.Name] = "paused"
	}
	return &headracev1.PauseReply{}, nil
}

// If datasets stayed paused, later kills of the round would hit trainers that read nothing.
func TestADatasetIsPausedForAWhileOnly(t *testing.T) {
	for state, want := range map[string][]string{"running": {"a"}, "failed": nil} {
		s := &states{of: map[string]string{"a": state}}
		c := &crew{books: &books{api: s}, inputs: []*input{{name: "a"}}}
		c.o.TTL = time.Nanosecond
		tr := &trouble{crew: c, rnd: rand.New(rand.NewPCG(1, 1)), tell: t.Logf}
		tr.pauseDataset(t.Context())
		if !slices.Equal(s.resumed, want) {
			t.Errorf("a dataset that was %s: resumed %q, want %q", state, s.resumed, want)
		}
	}
}

func TestNobodyReadsASlotWhoseBitIsFlipped(t *testing.T) {
	again, err := child.Start(t.TempDir(), "trainer-0", nil, "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop(0)
	c := &crew{seats: []*seat{{rank: 0, p: again, life: &life{rank: 0}}}}
	c.nodes.root = t.TempDir()
	tr := &trouble{crew: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	tr.flipIn(0) // its next process has been started since the kill
	if !again.Ended() {
		t.Error("the rank's process still runs, and may read the slot that was changed")
	}
}
