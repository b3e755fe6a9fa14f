package advice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

// FromMaster turns the gRPC error of a call to the master at target into an Error. It
// keeps the master's own hint. An error that is not of gRPC is returned as it is.
func FromMaster(err error, target link.Target) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{Kind: Failed, Err: errors.New(st.Message())}
	for _, d := range st.Details() {
		if detail, ok := d.(*headracev1.ErrorDetail); ok {
			e.Hint = detail.Hint
		}
	}
	if strings.Contains(st.Message(), e.Hint) {
		e.Hint = "" // said already
	}
	switch st.Code() {
	case codes.NotFound:
		e.Kind = NotFound
	case codes.InvalidArgument:
		e.Kind = Usage
	case codes.Unavailable, codes.DeadlineExceeded:
		if _, why, ok := strings.Cut(st.Message(), handshake); ok {
			e.Err = fmt.Errorf("master %s: %s", target, strings.TrimSuffix(why, `"`))
			return e
		}
		e.Kind = Unreachable
		if st.Code() == codes.DeadlineExceeded && !connecting(st.Message()) {
			e.Err = fmt.Errorf("the master at %s is there and has not answered in time: %s", target, st.Message())
			e.Hint = cmp.Or(e.Hint, "look at its output; it is not known whether this call took effect")
			return e
		}
		if st.Code() == codes.Unavailable && !unconnected(st.Message()) {
			e.Err = fmt.Errorf("the master stopped while it was asked: %s", reason(st.Message()))
			e.Hint = cmp.Or(e.Hint, "the master's own output says why; it is not known whether this call took effect")
			return e
		}
		e.Err = fmt.Errorf("no master answers at %s: %s", target, reason(st.Message()))
		e.Hint = "start one with `headrace up`, or say where it is with --master or HEADRACE_MASTER"
	case codes.Canceled:
		e.Err = context.Canceled
	case codes.Unimplemented:
		e.Err = fmt.Errorf("the master at %s does not know this call: %s", target, st.Message())
		e.Hint = "compare `headrace version` with the master's; one of them is of another version"
	}
	return e
}

// connecting reports whether a deadline passed before there was a connection: gRPC's own
// words name what it waited for.
func connecting(msg string) bool { return strings.Contains(msg, "while waiting for") }

// NoMaster reports whether a call failed because there is no connection to a master, and no
// other side refused one.
func NoMaster(err error) bool {
	st := status.Convert(err)
	return st.Code() == codes.Unavailable && unconnected(st.Message()) && !strings.Contains(st.Message(), handshake)
}

// unconnected reports whether a message is gRPC's own, for a call without a connection. gRPC
// has no code of its own for that.
func unconnected(msg string) bool { return strings.HasPrefix(msg, "connection error") }

// handshake is gRPC's word for a connection on which one side did not accept the other.
const handshake = "authentication handshake failed: "

// reason takes gRPC's own words off a connection error.
func reason(msg string) string {
	for _, cut := range []string{"transport: Error while dialing: ", "error reading server preface: "} {
		if i := strings.LastIndex(msg, cut); i >= 0 {
			msg = msg[i+len(cut):]
		}
	}
	return strings.TrimSuffix(msg, `"`)
}
