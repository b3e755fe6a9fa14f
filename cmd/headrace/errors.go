package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/headrace/headrace/agent/supervise"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
)

// Exit codes; docs/CLI.md promises them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2 // flags, arguments, settings, a spec
	exitNotFound    = 3 // a dataset, a checkpoint, the file of a spec, or one that it names
	exitUnreachable = 4 // no master or agent answers
	exitForced      = 130
)

// exitCodes are those of errors with advice.
var exitCodes = map[advice.Kind]int{
	advice.Failed: exitFailed, advice.Usage: exitUsage, advice.NotFound: exitNotFound, advice.Unreachable: exitUnreachable,
}

// failure is how a verb that did not succeed ends.
type failure struct {
	code int
	hint string
	err  error // nil: the answer is "no", and it has been shown
}

func (f *failure) Error() string {
	if f.err == nil {
		return "no"
	}
	return f.err.Error()
}
func (f *failure) Unwrap() error { return f.err }

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

// classify gives an error its exit code.
func classify(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if told, ok := errors.AsType[*advice.Error](err); ok {
		return &failure{exitCodes[told.Kind], told.Hint, err}
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
