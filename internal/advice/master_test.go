package advice

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

func TestAMastersErrorSaysWhatToDo(t *testing.T) {
	hinted := func(code codes.Code, text, hint string) error {
		st, err := status.New(code, text).WithDetails(&headracev1.ErrorDetail{Hint: hint})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, tc := range []struct {
		name string
		err  error
		kind Kind
		says string
		hint string
	}{
		{"not found", hinted(codes.NotFound, "no dataset clcks", "did you mean clicks?"), NotFound, "no dataset clcks", "did you mean clicks?"},
		{"hint said already", hinted(codes.InvalidArgument, "no: say a", "say a"), Usage, "no: say a", ""},
		{"no connection", status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`),
			Unreachable, "no master answers at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused", "headrace up"},
		{"not let in", status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: the master does not accept this caller: it wants a token"`),
			Failed, "master 127.0.0.1:1: the master does not accept this caller: it wants a token", ""},
		{"stopped meanwhile", status.Error(codes.Unavailable, "the master is stopping"), Unreachable, "the master stopped while it was asked: the master is stopping", "not known whether"},
		{"not connected in time", status.Error(codes.DeadlineExceeded, `received context error while waiting for new LB policy update: context deadline exceeded`),
			Unreachable, "no master answers at 127.0.0.1:1: ", "headrace up"},
		{"connected, no answer in time", status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
			Unreachable, "the master at 127.0.0.1:1 is there and has not answered in time", "not known whether"},
		{"older master", status.Error(codes.Unimplemented, "unknown method Cuts"), Failed, "does not know this call", "headrace version"},
	} {
		e, ok := errors.AsType[*Error](FromMaster(tc.err, link.Target{Address: "127.0.0.1:1"}))
		if !ok || e.Kind != tc.kind || e.Error() != tc.says && !strings.Contains(e.Error(), tc.says) || !strings.Contains(e.Hint, tc.hint) || tc.hint == "" && e.Hint != "" {
			t.Errorf("%s: %+v", tc.name, e)
		}
	}
	for text, want := range map[string]bool{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:  true,
		`connection error: desc = "transport: authentication handshake failed: the master does not accept this caller"`: false,
		"connection main: no bucket answers: connect: connection refused":                                               false,
	} {
		if got := NoMaster(status.Error(codes.Unavailable, text)); got != want {
			t.Errorf("NoMaster is %v for %s", got, text)
		}
	}
	if err := FromMaster(status.Error(codes.Canceled, "context canceled"), link.Target{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v, want %v", err, context.Canceled)
	}
	own := errors.New("made by this process")
	if FromMaster(own, link.Target{}) != own || FromMaster(nil, link.Target{}) != nil {
		t.Error("an error that no master made was changed")
	}
}
