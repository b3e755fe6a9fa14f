package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clip shortens s to width characters and ends it with "..." where something is missing.
func Clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	r := []rune(s)
	return string(r[:max(0, width-3)]) + "..."
}

// ClipMiddle shortens s to width characters, at least 5. It keeps both ends, with "..." between
// them: an error begins with its place and ends with its reason.
func ClipMiddle(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	head := (width - 3) / 2
	return string(r[:head]) + "..." + string(r[len(r)-(width-3-head):])
}

// Cell is a decoded value in a cell. Control characters become "?": no part of a
// record controls the terminal.
func Cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = Cell(v[i])
		}
		return "[" + strings.Join(parts, " ") + "]"
	case string:
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) { // also U+0080 to U+009F: U+009B begins a terminal sequence
				return '?'
			}
			return r
		}, v)
	}
	return fmt.Sprint(v)
}
