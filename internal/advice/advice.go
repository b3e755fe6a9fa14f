package advice

import "fmt"

// Kind says whose mistake an error is. docs/CLI.md promises an exit code for each.
type Kind uint8

const (
	Failed      Kind = iota // it was tried and did not work
	Usage                   // flags, arguments, settings, a spec
	NotFound                // a dataset, a file, a checkpoint
	Unreachable             // no master or agent answers
)

// Error is an error with its kind and what to do about it.
type Error struct {
	Kind Kind
	Hint string // "" if the error says it all
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Wrap gives err the kind k and a hint.
func (k Kind) Wrap(hint string, err error) error { return &Error{k, hint, err} }

// Errorf makes an error of kind k. The hint comes first, so that the format stands
// beside its arguments.
func (k Kind) Errorf(hint, format string, args ...any) error {
	return k.Wrap(hint, fmt.Errorf(format, args...))
}
