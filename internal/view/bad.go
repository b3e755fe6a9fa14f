package view

import (
	"fmt"
	"strings"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// Bad counts the records of a dataset that could not be decoded and are excluded.
type Bad struct {
	Records   uint64            `json:"records"`
	Columns   map[string]uint64 `json:"columns"`   // by name; "": the record as a whole
	Unwritten uint64            `json:"unwritten"` // dead letters that are not written yet
	text      string
}

func badOf(b *headracev1.BadRecords) *Bad {
	if b == nil {
		return nil
	}
	v := &Bad{Records: b.Records, Columns: map[string]uint64{}, Unwritten: b.Unwritten}
	var each []string
	for _, c := range b.Columns {
		v.Columns[c.Column] = c.Records
		name := "column " + c.Column
		if c.Column == "" {
			name = "the record as a whole"
		}
		each = append(each, fmt.Sprintf("%s %d", name, c.Records))
	}
	v.text = strings.Join(each, ", ")
	return v
}

func (b *Bad) sentence() string {
	s := fmt.Sprintf("%d records are excluded: %s", b.Records, b.text)
	if b.Unwritten > 0 {
		s += fmt.Sprintf("; %d dead letters are not written yet", b.Unwritten)
	}
	return s
}
