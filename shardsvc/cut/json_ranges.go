package cut

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/headrace/headrace/sources"
)

// The JSON form of ranges is a list of pieces per kind:
//
//	{"acked": [[1, 300, 460], [1, 1000, 1200]], "dropped": [[1, 500, 510]]}

// inPieces cuts ranges at the borders of segments.
func (all Ranges) inPieces(segs []sources.Segment) Ranges {
	if !slices.ContainsFunc(all, func(r Range) bool { return r.Start.Segment != r.End.Segment }) {
		return all
	}
	var out Ranges
	for _, r := range all {
		for p := range r.Pieces(segs) {
			out = append(out, Range{Place{p.Segment, p.Start}, Place{p.Segment, p.End}, r.Kind})
		}
	}
	return out
}

// MarshalJSON writes ranges of one segment each.
func (all Ranges) MarshalJSON() ([]byte, error) {
	b, lists := []byte("{"), 0
	for kind := range kinds {
		n := 0
		for i := range all {
			if r := &all[i]; r.Kind == kind {
				if n == 0 {
					if lists > 0 {
						b = append(b, ',')
					}
					b = append(append(append(b, '"'), kind.String()...), `":[`...)
				} else {
					b = append(b, ',')
				}
				b = appendNumbers(b, r.Start.Segment, r.Start.Offset, r.End.Offset)
				n++
			}
		}
		if n > 0 {
			b, lists = append(b, ']'), lists+1
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON merges the three lists, ordered by where their pieces begin. It does
// not sort a list that is out of order: the validator refuses that and says where.
func (all *Ranges) UnmarshalJSON(b []byte) error {
	var lists struct{ Acked, Excluded, Dropped json.RawMessage }
	if err := json.Unmarshal(b, &lists); err != nil {
		return WrongJSON(err)
	}
	var each [kinds]Ranges
	n := 0
	for kind, text := range [kinds]json.RawMessage{lists.Acked, lists.Excluded, lists.Dropped} {
		list, err := parsePieces(text, Kind(kind))
		if err != nil {
			return err.In(Kind(kind).String()).In("ranges")
		}
		each[kind], n = list, n+len(list)
	}
	if *all = each[Acked]; len(*all) < n {
		*all = merge(each, n)
	}
	return nil
}

func merge(each [kinds]Ranges, n int) Ranges {
	out := make(Ranges, 0, n)
	for len(out) < n {
		first := -1
		for kind := range each {
			if len(each[kind]) > 0 && (first < 0 || each[kind][0].Start.Compare(each[first][0].Start) < 0) {
				first = kind
			}
		}
		out, each[first] = append(out, each[first][0]), each[first][1:]
	}
	return out
}

// parsePieces reads a list of pieces from valid JSON. A list may have a million
// pieces, so it is read by hand.
func parsePieces(text []byte, kind Kind) (Ranges, *Error) {
	rest := bytes.TrimSpace(text)
	if len(rest) == 0 || string(rest) == "null" {
		return nil, nil
	}
	if rest[0] != '[' {
		return nil, invalid("", "%.40s: must be a list of [segment, start, end]", rest)
	}
	rest = rest[1:]
	var out Ranges
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n,") // it is JSON: commas are where they belong
		if rest[0] == ']' {
			return out, nil
		}
		var n [3]int64
		tail, err := numbers(rest, n[:])
		if err != nil {
			return nil, invalid("", "%v", err).In(fmt.Sprintf("[%d]", len(out)))
		}
		rest = tail
		out = append(out, Range{Place{n[0], n[1]}, Place{n[0], n[2]}, kind})
	}
}

func (p Place) MarshalJSON() ([]byte, error) { return appendNumbers(nil, p.Segment, p.Offset), nil }

func (p *Place) UnmarshalJSON(b []byte) error {
	var n [2]int64
	_, err := numbers(b, n[:])
	*p = Place{n[0], n[1]}
	return err
}

func (p Piece) MarshalJSON() ([]byte, error) {
	return appendNumbers(nil, p.Segment, p.Start, p.End), nil
}

func (p *Piece) UnmarshalJSON(b []byte) error {
	var n [3]int64
	_, err := numbers(b, n[:])
	*p = Piece{n[0], n[1], n[2]}
	return err
}

func appendNumbers(b []byte, all ...int64) []byte {
	for i, n := range all {
		b = strconv.AppendInt(append(b, "[,"[min(i, 1)]), n, 10)
	}
	return append(b, ']')
}

// numbers reads a list of exactly len(into) integers, and returns the text after it.
// encoding/json would fill a shorter list with zeros and cut off a longer one.
func numbers(b []byte, into []int64) (rest []byte, err error) {
	rest, ok := bytes.CutPrefix(b, []byte("["))
	for i := range into {
		end := bytes.IndexAny(rest, ",]")
		if !ok || end < 0 || (rest[end] == ']') != (i == len(into)-1) {
			return nil, notNumbers(b, len(into))
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(rest[:end])), 10, 64)
		if err != nil {
			return nil, notNumbers(b, len(into))
		}
		into[i], rest = n, rest[end+1:]
	}
	return rest, nil
}

func notNumbers(b []byte, n int) error {
	if end := bytes.IndexByte(b, ']'); end >= 0 {
		b = b[:end+1]
	}
	return fmt.Errorf("%.60s: must be %d integers", b, n)
}
