package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

func refused(message, hint string) *frame.Error {
	return &frame.Error{Code: frame.CodeRefused, Message: message, Hint: hint}
}

func invalid(message, hint string) *frame.Error {
	return &frame.Error{Code: frame.CodeInvalid, Message: message, Hint: hint}
}

// wireError is err as it is sent to the trainer.
func wireError(err error) *frame.Error {
	if e, ok := errors.AsType[*frame.Error](err); ok {
		return e
	}
	code := frame.CodeFailed
	switch {
	case errors.Is(err, frame.ErrProtocol):
		code = frame.CodeProtocol
	case errors.Is(err, context.DeadlineExceeded):
		code = frame.CodeUnavailable
	}
	return &frame.Error{Code: code, Message: err.Error()}
}

// refuse sends the error to the trainer and returns it. An agent that is stopping refuses
// nothing: it closes the connection, and the trainer looks for the next agent.
func (s *Server) refuse(c net.Conn, stream uint32, e *frame.Error) error {
	if err := s.stopped.Err(); err != nil {
		return err
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_ = frame.WriteControl(c, frame.TypeError, stream, 0, e)
	return e
}

// fault is the reason why the rest of a lease cannot be read.
type fault struct {
	kind      string // as in ReadFailure
	permanent bool
	field     string // with kind decode
	message   string
	lost      *pb.LostRange // with kind truncated: the master decides how to go on
}

// faultOf classifies an error of reading or decoding. name is the segment's.
func faultOf(ds *Dataset, name string, err error) fault {
	f := fault{kind: pb.KindIO, permanent: true, message: fmt.Sprintf("dataset %s: %v", ds.Name, err)}
	var (
		changed   *sources.Changed
		truncated *sources.Truncated
		diverged  *sources.Diverged
		tooLarge  *sources.TooLarge
		malformed *sources.Malformed
		temporary *sources.Temporary
		bad       *decode.Error
	)
	switch {
	case errors.As(err, &changed):
		f.kind = pb.KindChanged
	case errors.As(err, &truncated):
		f.kind = pb.KindTruncated
		f.message = fmt.Sprintf("%s: %v", truncated.Name, truncated.Err) // the master says which range
		f.lost = &pb.LostRange{Segment: truncated.Lost.Segment, Start: truncated.Lost.Start, End: truncated.Lost.End}
	case errors.As(err, &diverged):
		f.kind = pb.KindDiverged
	case errors.As(err, &tooLarge):
		f.kind = pb.KindTooLarge
	case errors.As(err, &malformed):
		f.kind = pb.KindMalformed
	case errors.As(err, &temporary):
		f.permanent = false
		if temporary.Away {
			f.kind = pb.KindAway
		}
		f.message = fmt.Sprintf("dataset %s: %s could not be read for %v: %v", ds.Name, name, retryFor, err)
	case errors.As(err, &bad):
		f.kind, f.field = pb.KindDecode, bad.Column
		f.message = fmt.Sprintf("dataset %s: %s: %v", ds.Name, name, err)
	default:
		f.message = fmt.Sprintf("dataset %s: %s: %v", ds.Name, name, err)
	}
	return f
}
