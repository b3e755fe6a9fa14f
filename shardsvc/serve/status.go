package serve

import (
	"context"
	"errors"
	"io/fs"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// detail says what an error is about. It is headracev1.ErrorDetail as a plain value.
type detail struct {
	Dataset, Partition, Position, Field, Hint string
	Line                                      int
}

// statusOf makes a gRPC error of err with its detail.
func statusOf(code codes.Code, err error, d detail) error {
	st := status.New(code, wire.Valid(err.Error()))
	with, werr := st.WithDetails(&headracev1.ErrorDetail{
		Dataset: wire.Valid(d.Dataset), Partition: wire.Valid(d.Partition), Position: wire.Valid(d.Position),
		Field: wire.Valid(d.Field), Line: int32(d.Line), Hint: wire.Valid(d.Hint),
	})
	if werr != nil {
		return st.Err() // the text alone says what happened
	}
	return with.Err()
}

// callStatus turns the error of a call on the loop into a gRPC status.
func callStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStopped):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// specStatus turns the error of a spec into a gRPC status. The message has all that is
// wrong; the detail has the first of it.
func specStatus(name string, err error) error {
	d := detail{Dataset: name}
	if e, ok := errors.AsType[*dataset.SpecError](err); ok {
		d.Field, d.Line, d.Hint = e.Field, e.Line, e.Allowed
	}
	code := codes.InvalidArgument
	if errors.Is(err, fs.ErrNotExist) {
		code = codes.NotFound // the spec is right; what it names is not there
	}
	return statusOf(code, err, d)
}
