package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/agent/supervise"
	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
)

// Exit codes; docs/CLI.md promises them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2 // flags, arguments, settings, a spec
	exitNotFound    = 3 // a dataset, the file of a spec, or one that it names
	exitUnreachable = 4 // no master answers
	exitForced      = 130
)

// failure is an error with its exit code and what to do about it. One without err is
// an answer that has been shown.
type failure struct {
	code int
	hint string
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return "no"
	}
	return f.err.Error()
}
func (f *failure) Unwrap() error { return f.err }

func usage(err error, hint string) error { return &failure{exitUsage, hint, err} }

func usagef(hint, format string, args ...any) error { return usage(fmt.Errorf(format, args...), hint) }

// report prints err with its hint and returns the exit code.
func (a *app) report(err error, interrupted bool) int {
	if err == nil {
		return exitOK
	}
	if interrupted && errors.Is(err, context.Canceled) {
		return exitForced
	}
	f := classify(err)
	if f.err == nil {
		return f.code
	}
	if interrupted && f.code == exitFailed {
		f.code = exitForced // it says in its own words how far it got
	}
	for i, line := range strings.Split(strings.TrimSpace(f.Error()), "\n") {
		prefix := "headrace: "
		if i > 0 {
			prefix = "          "
		}
		fmt.Fprintln(a.err, prefix+line)
	}
	if f.hint != "" {
		fmt.Fprintln(a.err, "    hint: "+f.hint)
	}
	return f.code
}

func classify(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if group, ok := errors.AsType[*supervise.Failed](err); ok {
		return &failure{code: group.ExitCode(), err: err}
	}
	if spec, ok := errors.AsType[dataset.SpecErrors](err); ok {
		return &failure{code: exitUsage, err: spec}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &failure{code: exitNotFound, err: err}
	}
	return &failure{code: exitFailed, err: err}
}

// fromMaster turns a gRPC error into what a person is told.
func fromMaster(err error, target link.Target) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	f := &failure{code: exitFailed, err: errors.New(st.Message())}
	for _, d := range st.Details() {
		if e, ok := d.(*headracev1.ErrorDetail); ok {
			f.hint = e.Hint
		}
	}
	if strings.Contains(st.Message(), f.hint) {
		f.hint = "" // said already
	}
	switch st.Code() {
	case codes.NotFound:
		f.code = exitNotFound
	case codes.InvalidArgument:
		f.code = exitUsage
	case codes.Unavailable, codes.DeadlineExceeded:
		f.code = exitUnreachable
		if st.Code() == codes.Unavailable && !strings.HasPrefix(st.Message(), "connection error") {
			f.err = fmt.Errorf("the master stopped while it was asked: %s", reason(st.Message()))
			f.hint = cmp.Or(f.hint, "its own output says why; whether this took effect is not known")
			return f
		}
		f.err = fmt.Errorf("no master answers at %s: %s", target, reason(st.Message()))
		f.hint = "start one with `headrace up`, or say where it is with --master or HEADRACE_MASTER"
	case codes.Canceled:
		f.err = context.Canceled
	case codes.Unimplemented:
		f.err = fmt.Errorf("the master at %s does not know this call: %s", target, st.Message())
		f.hint = "compare `headrace version` with the master's; one of them is of another version"
	}
	return f
}

// reason takes gRPC's own words off a connection error.
func reason(msg string) string {
	for _, cut := range []string{"transport: Error while dialing: ", "error reading server preface: "} {
		if i := strings.LastIndex(msg, cut); i >= 0 {
			msg = msg[i+len(cut):]
		}
	}
	return strings.TrimSuffix(msg, `"`)
}
