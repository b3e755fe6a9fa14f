package shardsvc

import (
	"errors"
	"fmt"
	"math"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// settledValue is `s`: low, and the ranges above it. Everything below low is settled.
type settledValue struct {
	units   [line.Kinds]int64
	records cut.Tally
	low     line.Place
	ranges  []settledRange
}

type settledRange struct {
	start, end line.Place
	kind       uint32
}

func decodeSettled(b []byte) (v settledValue, err error) {
	d, version := openUpTo(b, recordsVersion)
	for i := range v.units {
		v.units[i] = d.int()
	}
	if n := v.units[line.Acked]; n < 0 {
		d.fail(fmt.Errorf("%d acked units", n))
	}
	if v.records = cut.Untold(max(v.units[line.Acked], 0)); version >= recordsVersion {
		v.records = d.tally(v.units[line.Acked])
	}
	v.low = d.place()
	for range d.count(5) {
		r := settledRange{d.place(), d.place(), d.u32()}
		if r.kind >= line.Kinds {
			d.fail(fmt.Errorf("unknown kind %d of a settled range", r.kind))
		}
		v.ranges = append(v.ranges, r)
	}
	return v, d.done()
}

func appendSettledHead(b []byte, units *[line.Kinds]int64, records *cut.Tally, low line.Place, ranges int) []byte {
	b = append(b, recordsVersion)
	for _, x := range units {
		b = appendInt(b, x)
	}
	b = records.Append(b)
	return appendUint(appendPlace(b, low), ranges)
}

func appendSettledRange(b []byte, start, end line.Place, kind uint32) []byte {
	return appendUint(appendPlace(appendPlace(b, start), end), kind)
}

// runVersion of `a` added runs of several pieces.
const runVersion = 3

// ackValue is `a`: settled pieces, each of which begins where the one before it ends. Each
// belongs to a step of a rank. They end in the segment that the first one begins in.
type ackValue struct {
	rank, generation uint32
	pieces           []ackPiece
	uncounted        bool // the only piece, of a version that did not count: all of its units are untold
}

const ackPieceBytes = 6 // at least

type ackPiece struct {
	end, step int64
	records   cut.Tally
}

func (v *ackValue) append(b []byte) []byte {
	first := &v.pieces[0]
	if v.uncounted {
		b = appendUint(appendUint(appendInt(append(b, valueVersion), first.end), v.rank), v.generation)
		return appendInt(b, first.step)
	}
	b = appendUint(appendUint(append(b, runVersion), v.rank), v.generation)
	b = appendUint(b, len(v.pieces))
	end, step := int64(0), int64(0)
	for i := range v.pieces {
		k := &v.pieces[i]
		b = k.records.Append(appendInt(appendInt(b, k.end-end), k.step-step))
		end, step = k.end, k.step
	}
	return b
}

func decodeAck(b []byte) (v ackValue, err error) {
	d, version := openUpTo(b, runVersion)
	if version < runVersion {
		k := ackPiece{end: d.int()}
		v.rank, v.generation, k.step = d.u32(), d.u32(), d.int()
		if v.uncounted = version < recordsVersion; !v.uncounted {
			k.records = d.tally(math.MaxInt64)
		}
		v.pieces = []ackPiece{k}
		return v, d.done()
	}
	v.rank, v.generation = d.u32(), d.u32()
	var k ackPiece
	for range d.count(ackPieceBytes) {
		k.end, k.step = k.end+d.int(), k.step+d.int()
		k.records = d.tally(math.MaxInt64)
		v.pieces = append(v.pieces, k)
	}
	if d.err == nil && len(v.pieces) == 0 {
		d.fail(errors.New("it has no piece"))
	}
	return v, d.done()
}

// triesValue is `t`.
type triesValue struct {
	end   line.Place
	tries uint32 // see tries
}

func (v *triesValue) append(b []byte) []byte {
	return appendUint(appendPlace(append(b, valueVersion), v.end), v.tries)
}

func decodeTries(b []byte) (v triesValue, err error) {
	d := open(b)
	v.end, v.tries = d.place(), d.u32()
	return v, d.done()
}

// columnVersion of `x` added the column. It is written only where there is one, so older
// binaries read all others.
const columnVersion = 2

// exclusionValue is `x`.
type exclusionValue struct {
	end, units   int64
	kind, reason string
	when         int64
	column       string // of a bad record
}

func (v *exclusionValue) append(b []byte) []byte {
	version := byte(valueVersion)
	if v.column != "" {
		version = columnVersion
	}
	b = appendInt(appendInt(append(b, version), v.end), v.units)
	b = appendInt(appendString(appendString(b, v.kind), v.reason), v.when)
	if version >= columnVersion {
		b = appendString(b, v.column)
	}
	return b
}

func decodeExclusion(b []byte) (v exclusionValue, err error) {
	d, version := openUpTo(b, columnVersion)
	v.end, v.units, v.kind, v.reason, v.when = d.int(), d.int(), d.string(), d.string(), d.int()
	if version >= columnVersion {
		v.column = d.string()
	}
	return v, d.done()
}

// dropValue is `q`.
type dropValue struct {
	end, units, step int64
	loose            bool
}

func (v *dropValue) append(b []byte) []byte {
	return appendBool(appendInt(appendInt(appendInt(append(b, valueVersion), v.end), v.units), v.step), v.loose)
}

func decodeDrop(b []byte) (v dropValue, err error) {
	d := open(b)
	v.end, v.units, v.step, v.loose = d.int(), d.int(), d.int(), d.bool()
	return v, d.done()
}

// formVersion of `b` added the form. It is written only where there is one, so older
// binaries read all others.
const formVersion = 2

// letterValue is `b`: a dead letter that is not written yet where its dataset wants it.
type letterValue struct {
	end, when, size      int64
	column, kind, reason string
	value, key           []byte
	form                 string // in formVersion and later
}

func (v *letterValue) append(b []byte) []byte {
	version := byte(valueVersion)
	if v.form != "" {
		version = formVersion
	}
	b = appendInt(appendInt(appendInt(append(b, version), v.end), v.when), v.size)
	b = appendString(appendString(appendString(b, v.column), v.kind), v.reason)
	b = appendString(appendString(b, v.value), v.key)
	if version >= formVersion {
		b = appendString(b, v.form)
	}
	return b
}

func decodeLetter(b []byte) (v letterValue, err error) {
	d, version := openUpTo(b, formVersion)
	v.end, v.when, v.size = d.int(), d.int(), d.int()
	v.column, v.kind, v.reason = d.string(), d.string(), d.string()
	v.value, v.key = d.bytes(), d.bytes()
	if version >= formVersion {
		v.form = d.string()
	}
	return v, d.done()
}
