package starter

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/advice"
)

// layout is how a record is cut into fields.
type layout struct {
	format    string // csv, tsv, json, lines, raw, parquet, tfrecord
	delimiter byte   // of csv, if it is no comma
	header    bool
}

// table is what was seen in some records, field by field.
type table struct {
	layout
	fields []*field // in the order of the columns
	rows   int
}

// field is one place in the records, and what its values are.
type field struct {
	name string // by the header or by JSON; "" without a header
	path string // as a spec writes it
	seen stats
}

// tableOf cuts records into fields. hint is the format by the file's name; "": the name tells
// nothing.
func tableOf(records [][]byte, hint, about string, topic bool) (*table, error) {
	for _, r := range records {
		if !utf8.Valid(r) && looksLikeLatin1(records) {
			return nil, advice.Failed.Errorf("if it is Latin-1: `iconv -f latin1 -t utf-8 "+about+" > utf8.csv`; from Windows it is mostly -f cp1252", "%s is text, and not in UTF-8", about)
		}
		if !utf8.Valid(r) || bytes.IndexByte(r, 0) >= 0 {
			return nil, advice.Failed.Errorf("for rows of one size, write the spec by hand: docs/DATASETS.md#binary",
				"%s holds bytes that are no text: it is neither CSV, TSV, JSON lines, Parquet nor TFRecord", about)
		}
	}
	if hint == "json" || hint == "" && looksLikeJSON(records) {
		t, err := jsonTable(records)
		if err != nil && hint == "" {
			return linesTable(topic), nil
		}
		if err != nil {
			return nil, advice.Failed.Errorf("Headrace reads JSON lines: one object on each line. `jq -c '.[]' in.json > out.jsonl` makes them of an array",
				"%s: %w", about, err)
		}
		return t, nil
	}
	delimiter := byte('\t')
	switch hint {
	case "tsv":
	case "csv":
		if delimiter = delimiterOf(records, ",;|"); delimiter == 0 {
			delimiter = ','
		}
	default:
		if delimiter = delimiterOf(records, "\t,;|"); delimiter == 0 {
			return linesTable(topic), nil
		}
	}
	return delimited(records, delimiter, topic)
}

// looksLikeLatin1 reports whether the records may be text in Latin-1: no control bytes, and less
// than a third of the bytes above 127.
func looksLikeLatin1(records [][]byte) bool {
	all, high := 0, 0
	for _, r := range records {
		for _, b := range r {
			switch {
			case b >= 0xa0 || b >= 0x80 && b != 0x81:
				high++
			case b < ' ' && b != '\t' && b != '\r':
				return false
			}
		}
		all += len(r)
	}
	return high > 0 && high*3 < all
}

func linesTable(topic bool) *table {
	if topic {
		return &table{layout: layout{format: "raw"}}
	}
	return &table{layout: layout{format: "lines"}}
}

// delimiterOf returns the first of the bytes that nine of ten records have equally often. A
// record with quotes may have more of them, because text in quotes may have some.
func delimiterOf(records [][]byte, among string) byte {
	for _, d := range []byte(among) {
		count, same := -1, 0
		for _, r := range records {
			n := bytes.Count(r, []byte{d})
			if count < 0 {
				count = n
			}
			if n == count || n > count && bytes.IndexByte(r, '"') >= 0 {
				same++
			}
		}
		if count > 0 && same*10 >= len(records)*9 {
			return d
		}
	}
	return 0
}

func looksLikeJSON(records [][]byte) bool {
	return len(records) > 0 && bytes.HasPrefix(bytes.TrimSpace(records[0]), []byte("{"))
}

func delimited(records [][]byte, delimiter byte, topic bool) (*table, error) {
	t := &table{layout: layout{format: "csv", delimiter: delimiter}}
	if delimiter == '\t' {
		t.format = "tsv"
	}
	rows, err := split(records, t.layout)
	if err != nil {
		return nil, err
	}
	width := 0
	for _, row := range rows {
		width = max(width, len(row))
	}
	if !topic && isHeader(rows) {
		t.header = true
		first := rows[0]
		rows = slices.DeleteFunc(rows, func(row []string) bool { return slices.Equal(row, first) })
		for i, name := range first {
			path := name
			if slices.Index(first, name) != i || name == "" || name[0] == '$' || isNumber(name) {
				path = strconv.Itoa(i)
			}
			t.fields = append(t.fields, &field{name: strings.TrimSpace(name), path: path})
		}
	} else {
		for i := range width {
			t.fields = append(t.fields, &field{path: strconv.Itoa(i)})
		}
	}
	for _, row := range rows {
		for i, f := range t.fields {
			if i < len(row) {
				f.seen.text(row[i])
			} else {
				f.seen.text("")
			}
		}
	}
	t.rows = len(rows)
	return t, nil
}

func split(records [][]byte, l layout) (rows [][]string, err error) {
	if l.format == "tsv" {
		for _, r := range records {
			if text := strings.TrimRight(string(r), "\r"); text != "" {
				rows = append(rows, strings.Split(text, "\t"))
			}
		}
		return rows, nil
	}
	// As one text, because a line end inside quotes belongs to its record.
	in := csv.NewReader(bytes.NewReader(bytes.Join(records, []byte("\n"))))
	in.Comma, in.FieldsPerRecord, in.LazyQuotes = rune(l.delimiter), -1, true
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

var wordy = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9 _./-]{0,63}$`)

// isHeader reports whether the first row names the fields. It does in two cases. Most of its
// values are words, and in the column of a word all other values are numbers. Or all of its
// values are names, and no other row has the same value in the same column.
func isHeader(rows [][]string) bool {
	first := rows[0]
	rows = slices.Clone(rows)
	// The headers of other files are left out.
	rows = append(rows[:1], slices.DeleteFunc(rows[1:], func(row []string) bool { return slices.Equal(row, first) })...)
	words, named, names := 0, 0, true
	for i, v := range first {
		v = strings.TrimSpace(v)
		if v != "" {
			named++
		}
		if v != "" && !isNumber(v) {
			words++
		}
		names = names && wordy.MatchString(v) && slices.Index(first, first[i]) == i
	}
	if len(rows) == 1 {
		return names
	}
	apart := true
	for i, v := range first {
		numbers := 0
		for _, row := range rows[1:] {
			switch {
			case i >= len(row) || row[i] == "":
			case isNumber(row[i]):
				numbers++
			default:
				numbers = -len(rows)
			}
			apart = apart && (i >= len(row) || row[i] != v)
		}
		if numbers > 0 && v != "" && !isNumber(v) && 2*words > named {
			return true
		}
	}
	return names && apart
}

func isNumber(v string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	return err == nil
}

// jsonTable flattens objects: {"a": {"b": 1}} has the field /a/b.
func jsonTable(records [][]byte) (*table, error) {
	t := &table{layout: layout{format: "json"}}
	at := map[string]*field{}
	for _, r := range records {
		if len(bytes.TrimSpace(r)) == 0 {
			continue
		}
		in := json.NewDecoder(bytes.NewReader(r))
		in.UseNumber()
		var v any
		if err := in.Decode(&v); err != nil {
			return nil, err
		}
		object, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("a line is JSON, but no object")
		}
		order, err := membersOf(r)
		if err != nil {
			return nil, err
		}
		t.rows++
		t.flatten(at, "", "", object, order, 0)
	}
	for _, f := range t.fields {
		f.seen.total = t.rows
	}
	return t, nil
}

const deepest = 4

func (t *table) flatten(at map[string]*field, path, name string, object map[string]any, order []string, depth int) {
	for _, member := range order {
		p := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(member)
		if member == "*" {
			p = path + "/~2"
		}
		n := strings.TrimPrefix(name+"_"+member, "_")
		switch v := object[member].(type) {
		case map[string]any:
			if depth < deepest {
				names := make([]string, 0, len(v))
				for k := range v {
					names = append(names, k)
				}
				slices.Sort(names)
				t.flatten(at, p, n, v, names, depth+1)
			}
		case []any:
			for _, element := range v {
				t.field(at, p+"/*", n).seen.value(element)
			}
		default:
			t.field(at, p, n).seen.value(v)
		}
	}
}

func (t *table) field(at map[string]*field, path, name string) *field {
	f := at[path]
	if f == nil {
		f = &field{name: name, path: path}
		f.seen.ragged = strings.HasSuffix(path, "/*")
		at[path] = f
		t.fields = append(t.fields, f)
	}
	return f
}

// membersOf returns the names of an object's members, in the order of the text.
func membersOf(text []byte) (names []string, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, err
		}
		var skipped json.RawMessage
		if err := in.Decode(&skipped); err != nil {
			return nil, err
		}
		if s, ok := name.(string); ok && !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return names, nil
}
