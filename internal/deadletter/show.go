package deadletter

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/terminal"
)

// WriteList writes a table of letters.
func WriteList(w io.Writer, all []Letter) {
	t := terminal.NewTable("ID", "IN", "COLUMN", "BYTES>", "SINCE", "REASON")
	for i := range all {
		l, size := &all[i], "-"
		if l.Bytes() {
			size = fmt.Sprint(l.Size)
		}
		t.Row(l.ID, l.Name, columnText(l.Column), size, l.Time, terminal.Clip(l.Reason, 80))
	}
	t.Write(w)
}

// Write writes one letter with its bytes.
func (l *Letter) Write(w io.Writer) {
	line := func(name, value string) { fmt.Fprintf(w, "%-9s %s\n", name, value) }
	line("id", l.ID)
	line("in", fmt.Sprintf("%s, pass %d, offset %d to %d", l.Name, l.Pass+1, l.Offset, l.End))
	line("column", columnText(l.Column))
	line("kind", l.Kind)
	line("reason", l.Reason)
	line("since", l.Time)
	if len(l.Key) > 0 {
		line("key", textOf(l.Key))
	}
	size := fmt.Sprintf("%d bytes", l.Size)
	if !l.Bytes() {
		line("value", "none: nothing of the row is kept")
		return
	}
	if l.Form == FormJSON {
		size += ", the row as JSON: it has no bytes of its own"
	}
	if !l.Whole() {
		size += fmt.Sprintf(", the first %d are kept", len(l.Value))
	}
	line("value", size)
	fmt.Fprintln(w, textOf(l.Value))
}

func columnText(column string) string {
	if column == "" {
		return "(record)"
	}
	return column
}

// textOf shows bytes: as text where they are text, else quoted.
func textOf(b []byte) string {
	if utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f }) {
		return strings.TrimRight(string(b), "\r\n")
	}
	return fmt.Sprintf("%q", b)
}
