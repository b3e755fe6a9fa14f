package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table lays rows out in columns. A column whose header ends in > is right-aligned;
// the > itself is not printed.
type Table struct {
	rows [][]string
}

// NewTable makes a table with one column for each header.
func NewTable(header ...string) *Table { return &Table{rows: [][]string{header}} }

// Row adds a line; it has as many cells as the header.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Empty says that there is nothing below the header.
func (t *Table) Empty() bool { return len(t.rows) == 1 }

// Write prints the table, header first. It is called once.
func (t *Table) Write(w io.Writer) {
	width := make([]int, len(t.rows[0]))
	right := make([]bool, len(t.rows[0]))
	for i, h := range t.rows[0] {
		t.rows[0][i], right[i] = strings.CutSuffix(h, ">")
	}
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		var line strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				line.WriteString("  ")
			}
			if right[i] {
				line.WriteString(pad + c)
			} else {
				line.WriteString(c + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
