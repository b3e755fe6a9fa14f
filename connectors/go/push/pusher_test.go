package push

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shy answers the first calls with "later".
type shy struct {
	grpc.ClientConnInterface
	later int
}

func (s *shy) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	if s.later--; s.later >= 0 {
		return status.Error(codes.Unavailable, "a chunk could not be stored: no space left on device")
	}
	return nil
}

func TestACallerIsToldWhyAPusherWaits(t *testing.T) {
	var told []string
	if _, err := Open(t.Context(), &shy{later: 2}, "clicks", OnWait(func(reason error) { told = append(told, status.Convert(reason).Message()) })); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0] != "a chunk could not be stored: no space left on device" {
		t.Errorf("%q", told)
	}
	if _, err := Open(t.Context(), &shy{later: 1}, "clicks"); err != nil {
		t.Error(err)
	}
}
