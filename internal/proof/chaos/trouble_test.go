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
