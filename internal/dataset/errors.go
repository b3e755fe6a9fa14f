package dataset

import (
	"fmt"
	"strings"
)

// SpecError is one thing that is wrong in a written spec.
type SpecError struct {
	File    string // as given to Parse; "" when there is none
	Line    int    // from 1; 0 when the spec did not come from text
	Field   string // "decode.columns[3].dtype"
	Value   string // what was written, "" when it was left out
	Reason  string // why it is not accepted
	Allowed string // what would be, "" when the reason says it
}

// Error reads "clicks.yaml:12: decode.columns[3].dtype: "int": no such type; use int32 or int64".
func (e *SpecError) Error() string {
	var b strings.Builder
	switch {
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	case e.File != "":
		fmt.Fprintf(&b, "%s: ", e.File)
	case e.Line > 0:
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", clip(e.Value))
	}
	b.WriteString(e.Reason)
	if e.Allowed != "" {
		b.WriteString("; " + e.Allowed)
	}
	return b.String()
}

// SpecErrors is everything that is wrong in a spec, in order of lines.
// errors.As finds the first *SpecError in it.
type SpecErrors []*SpecError

func (e SpecErrors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

func (e SpecErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// clip keeps a message on one screen line whatever was written.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// OneOf is the usual text of Allowed.
func OneOf(names ...string) string { return "use one of " + strings.Join(names, ", ") }
