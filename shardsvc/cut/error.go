package cut

import (
	"errors"
	"fmt"
)

var (
	// ErrDamaged: the bytes are not what a writer wrote. They were cut off or changed,
	// or are something else.
	ErrDamaged = errors.New("damaged")
	// ErrNewer: a newer Headrace wrote it. It may be perfectly good.
	ErrNewer = errors.New("of a newer version")
	// ErrInvalid: well-formed, but it says what cannot be true.
	ErrInvalid = errors.New("invalid")
)

// Error says what is wrong with a cut. It wraps ErrDamaged, ErrNewer or ErrInvalid.
type Error struct {
	Kind   error
	Field  string // "datasets[0].partitions[2].passes[0].low"; "" is the whole
	Reason string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%v: %s", e.Kind, e.Reason)
	}
	return fmt.Sprintf("%v: %s: %s", e.Kind, e.Field, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

// In puts field in front of e's path: "low" in "passes[0]" is "passes[0].low". Only
// the error path builds names: a cut may have a million parts.
func (e *Error) In(field string) *Error {
	if e.Field != "" && e.Field[0] != '[' {
		field += "."
	}
	e.Field = field + e.Field
	return e
}

func (e *Error) at(list string, i int) *Error { return e.In(fmt.Sprintf("%s[%d]", list, i)) }

func invalid(field, reason string, args ...any) *Error {
	return &Error{ErrInvalid, field, fmt.Sprintf(reason, args...)}
}

func damaged(reason string, args ...any) *Error {
	return &Error{Kind: ErrDamaged, Reason: fmt.Sprintf(reason, args...)}
}
