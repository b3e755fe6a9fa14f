package chaos

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// states answers with a state for each dataset, and notes which are resumed.
type states struct {
	headracev1.DatasetsClient
	of      map[string]string
	reason  string
	resumed []string
}

func (s *states) Describe(_ context.Context, q *headracev1.DescribeRequest, _ ...grpc.CallOption) (*headracev1.Dataset, error) {
	return &headracev1.Dataset{State: s.of[q.Name], Reason: s.reason}, nil
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

func TestOnlyADatasetWhoseBrokerWasAwayIsResumed(t *testing.T) {
	away := "partition a/0 pass 0: ... cannot be read (io, try 3): ...; when the source answers again, run `headrace dataset resume a`: it goes on there"
	for _, one := range []struct {
		what, state, reason string
		broker              *broker
		good                bool
	}{
		{"a broker was away", "failed", away, &broker{}, true},
		{"nothing has failed", "running", "", &broker{}, false},
		{"records are lost", "failed", "records were deleted", &broker{}, false},
		{"files do not go away", "failed", away, nil, false},
	} {
		s := &states{of: map[string]string{"a": one.state}, reason: one.reason}
		c := &crew{books: &books{api: s}, inputs: []*input{{name: "a"}}, broker: one.broker}
		if good, _ := c.resumeUnanswered(t.Context()); good != one.good || len(s.resumed) > 0 != one.good {
			t.Errorf("%s: good %v, resumed %q", one.what, good, s.resumed)
		}
	}
}
