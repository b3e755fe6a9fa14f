package dataset

import (
	"fmt"
	"strconv"
	"strings"
)

// PathKind says where a column's value comes from.
type PathKind uint8

const (
	FieldNumber PathKind = iota + 1 // csv, tsv: Number, from 0
	FieldName                       // csv, tsv: Name, looked up in the header line or in decode.fields
	Pointer                         // json: Tokens
	Key                             // $key
	Value                           // $value: the whole record
	HeaderValue                     // $header.x: Name is x
	Timestamp                       // $timestamp: ms since the epoch
	Tombstone                       // $tombstone: 1 if the value is null, else 0
	FromPath                        // $path.dt: Name is dt, of a folder dt=2026-11-22 of the file's path
)

// Path is one parsed path of a column.
type Path struct {
	Kind   PathKind
	Number int
	Name   string
	Tokens []string // of the JSON Pointer, unescaped
	Stars  []bool   // per token: it is *, every element of an array
}

// Ragged reports whether one record can give any number of values here.
func (p Path) Ragged() bool {
	for _, s := range p.Stars {
		if s {
			return true
		}
	}
	return false
}

const maxFields = 1 << 16

// ParsePath reads one path as a format understands it. A path of digits is
// always a field's number, even if a field has such a name.
func ParsePath(format, text string) (Path, error) {
	if strings.HasPrefix(text, "$") {
		return parseMeta(text)
	}
	switch format {
	case "csv", "tsv":
		return parseField(text)
	case "json":
		return parsePointer(text)
	}
	if Fielded(format) {
		if text != "" && text[0] != '/' { // a name, whatever characters it has
			return Path{Kind: Pointer, Tokens: []string{text}, Stars: []bool{false}}, nil
		}
		return parsePointer(text)
	}
	return Path{}, fmt.Errorf("format %s has no fields; use $value, the whole record", format)
}

func parseMeta(text string) (Path, error) {
	switch text {
	case "$key":
		return Path{Kind: Key}, nil
	case "$value":
		return Path{Kind: Value}, nil
	case "$timestamp":
		return Path{Kind: Timestamp}, nil
	case "$tombstone":
		return Path{Kind: Tombstone}, nil
	}
	if name, ok := strings.CutPrefix(text, "$header."); ok && name != "" {
		return Path{Kind: HeaderValue, Name: name}, nil
	}
	if name, ok := strings.CutPrefix(text, "$path."); ok && name != "" {
		return Path{Kind: FromPath, Name: name}, nil
	}
	return Path{}, fmt.Errorf("is not known; use $key, $value, $header.<name>, $path.<name>, $timestamp or $tombstone")
}

func parseField(text string) (Path, error) {
	if text == "" {
		return Path{}, fmt.Errorf("is empty; write a field's number (from 0) or name")
	}
	if !allDigits(text) {
		return Path{Kind: FieldName, Name: text}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n >= maxFields {
		return Path{}, fmt.Errorf("is too large; fields are numbered 0 to %d", maxFields-1)
	}
	return Path{Kind: FieldNumber, Number: n}, nil
}

// parsePointer reads RFC 6901, with a token * for every element of an array. A
// member that is really called * is written ~2.
func parsePointer(text string) (Path, error) {
	p := Path{Kind: Pointer}
	if text == "" {
		return p, fmt.Errorf("is empty; write a JSON Pointer such as /user/id, or $value for the whole record")
	}
	if text[0] != '/' {
		return p, fmt.Errorf("a JSON Pointer begins with a slash; write /%s", strings.ReplaceAll(text, ".", "/"))
	}
	for _, raw := range strings.Split(text[1:], "/") {
		token, err := unescape(raw)
		if err != nil {
			return p, err
		}
		p.Tokens, p.Stars = append(p.Tokens, token), append(p.Stars, raw == "*")
	}
	return p, nil
}

func unescape(raw string) (string, error) {
	if !strings.Contains(raw, "~") {
		return raw, nil
	}
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] != '~' {
			b.WriteByte(raw[i])
			continue
		}
		i++
		if i == len(raw) || raw[i] < '0' || raw[i] > '2' {
			return "", fmt.Errorf("a ~ in a JSON Pointer is followed by 0 (for ~), 1 (for /) or 2 (for *)")
		}
		b.WriteByte("~/*"[raw[i]-'0'])
	}
	return b.String(), nil
}

// ExpandPaths reads a column's list; "1..13" stands for the fields 1 to 13,
// both included.
func ExpandPaths(format string, list []string) ([]Path, error) {
	var all []Path
	for _, text := range list {
		run, err := expand(format, text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", clip(text), err)
		}
		if all = append(all, run...); len(all) > maxFields {
			return nil, fmt.Errorf("has more than %d fields", maxFields)
		}
	}
	return all, nil
}

func expand(format, text string) ([]Path, error) {
	from, to, isRun := strings.Cut(text, "..")
	if !isRun || !allDigits(from) || !allDigits(to) || (format != "csv" && format != "tsv") {
		p, err := ParsePath(format, text)
		return []Path{p}, err
	}
	first, err := parseField(from)
	if err != nil {
		return nil, err
	}
	last, err := parseField(to)
	if err != nil {
		return nil, err
	}
	if first.Number > last.Number {
		return nil, fmt.Errorf("runs backwards; write %d..%d", last.Number, first.Number)
	}
	run := make([]Path, 0, last.Number-first.Number+1)
	for n := first.Number; n <= last.Number; n++ {
		run = append(run, Path{Kind: FieldNumber, Number: n})
	}
	return run, nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// String writes the path as it is written in a spec.
func (p Path) String() string {
	switch p.Kind {
	case FieldNumber:
		return strconv.Itoa(p.Number)
	case FieldName:
		return p.Name
	case Key:
		return "$key"
	case Value:
		return "$value"
	case HeaderValue:
		return "$header." + p.Name
	case FromPath:
		return "$path." + p.Name
	case Timestamp:
		return "$timestamp"
	case Tombstone:
		return "$tombstone"
	}
	var b strings.Builder
	for i, t := range p.Tokens {
		b.WriteByte('/')
		switch {
		case p.Stars[i]:
			b.WriteByte('*')
		case t == "*":
			b.WriteString("~2")
		default:
			b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(t))
		}
	}
	return b.String()
}
