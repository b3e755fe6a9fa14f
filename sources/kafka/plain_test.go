package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/headrace/headrace/sources"
)

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("HEADRACE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("HEADRACE_SEED: %v", err)
		}
	}
	t.Logf("HEADRACE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// drawnRecords returns the random body of a batch of count records, and the last offset delta of its header.
// About every second run of records is plain.
func drawnRecords(rng *rand.Rand, count int) (body []byte, lastDelta int32) {
	common := rng.IntN(4) > 0 // otherwise nearly every record is odd in some way
	delta := int64(-1)
	for range count {
		odd := !common || rng.IntN(40) == 0
		delta++
		if odd && rng.IntN(3) == 0 {
			delta += rng.Int64N(20_000)
		}
		var b []byte
		b = append(b, byte(rng.IntN(2))) // attributes
		bits := 12
		if odd {
			bits = 30
		}
		b = binary.AppendVarint(b, rng.Int64N(1<<(1+rng.IntN(bits)))-rng.Int64N(3))
		b = binary.AppendVarint(b, delta)
		if odd && rng.IntN(2) == 0 {
			b = drawnPiece(rng, b, 20)
		} else {
			b = append(b, 1) // no key
		}
		most := 1 + rng.IntN(1<<(1+rng.IntN(12)))
		if odd && rng.IntN(500) == 0 {
			most = 3 << 20
		}
		if odd {
			b = drawnPiece(rng, b, most)
		} else {
			b = binary.AppendVarint(b, int64(most))
			b = append(b, bytes.Repeat([]byte{byte(most)}, most)...)
		}
		headers := 0
		if odd && rng.IntN(2) == 0 {
			headers = rng.IntN(3)
		}
		b = binary.AppendVarint(b, int64(headers))
		for range headers {
			b = drawnPiece(rng, drawnPiece(rng, b, 5), 50)
		}
		if odd && rng.IntN(5) == 0 {
			b = append(b, 0, 0) // more bytes than the length says
		}
		body = append(binary.AppendVarint(body, int64(len(b))), b...)
	}
	return body, int32(delta)
}

// drawnPiece appends null, an empty value, or some bytes.
func drawnPiece(rng *rand.Rand, b []byte, most int) []byte {
	switch rng.IntN(4) {
	case 0:
		return binary.AppendVarint(b, -1)
	case 1:
		return binary.AppendVarint(b, 0)
	}
	n := rng.IntN(most + 1)
	return append(binary.AppendVarint(b, int64(n)), make([]byte, n)...)
}

// sameAsAny fails unless appendRecords, with its fast path for plain records, gives the same as appendAny.
func sameAsAny(t *testing.T, h *header, body []byte, w want) {
	t.Helper()
	arena := append([]byte("before"), body...)
	var got, wanted sources.Batch
	err := appendRecords(h, arena, 6, len(arena), w, &got)
	wantedErr := appendAny(h, arena, len(arena), plainRun{from: 6, left: h.count, previous: -1}, w, &wanted)
	if !sameError(err, wantedErr) {
		t.Fatalf("%+v, %+v: the error is %v, but %v without the fast path", h, w, err, wantedErr)
	}
	if len(got.Recs) != len(wanted.Recs) {
		t.Fatalf("%+v, %+v: %d records, but %d without the fast path", h, w, len(got.Recs), len(wanted.Recs))
	}
	for i := range got.Recs {
		if !reflect.DeepEqual(got.Recs[i], wanted.Recs[i]) {
			t.Fatalf("%+v, %+v: record %d is\n%+v, but without the fast path\n%+v", h, w, i, got.Recs[i], wanted.Recs[i])
		}
	}
}

func sameError(a, b error) bool {
	var x, y *tooLarge
	if errors.As(a, &x) && errors.As(b, &y) {
		return *x == *y
	}
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

func TestPlainRecordsAreReadAsAnyOthers(t *testing.T) {
	rng := seeded(t)
	taken := 0
	for range 400 {
		count := rng.IntN(200)
		body, last := drawnRecords(rng, count)
		h := &header{base: rng.Int64N(1 << 40), attributes: int16(rng.IntN(2) * 8), lastDelta: last, baseTime: rng.Int64N(1000) - 5,
			maxTime: rng.Int64N(10) - 1, count: int32(count)}
		w := want{end: 1 << 62, maxRecord: 1 << 30}
		sameAsAny(t, h, body, w)
		taken += count - int(appendPlain(h, body, 0, len(body), w, &sources.Batch{}).left)
		if rng.IntN(2) == 0 {
			w.from = h.base + rng.Int64N(int64(last)+2)
			w.end = w.from + rng.Int64N(int64(last)+2)
			w.maxRecord = rng.Int64N(1 << 15)
		}
		sameAsAny(t, h, body, w)
		switch rng.IntN(4) {
		case 0:
			h.count = max(0, h.count+int32(rng.IntN(3))-1)
		case 1:
			h.lastDelta = max(0, h.lastDelta-int32(rng.IntN(3)))
		case 2:
			if len(body) > 0 {
				body[rng.IntN(len(body))] ^= byte(1 + rng.IntN(255))
			}
		case 3:
			body = body[:rng.IntN(len(body)+1)]
		}
		sameAsAny(t, h, body, w)
	}
	if taken < 1000 {
		t.Errorf("only %d records took the fast path", taken)
	}
}

func FuzzPlainRecords(f *testing.F) {
	f.Add(encodedPlain(f, []string{"a", "bb", ""})[headerSize:], int32(3), int32(2), int64(0), int64(9))
	f.Add(encoded(f, 0, 0, "a", "bb", "")[headerSize:], int32(3), int32(2), int64(1), int64(2))
	f.Fuzz(func(t *testing.T, body []byte, count, last int32, from, end int64) {
		if count < 0 || last < 0 { // parseHeader refuses
			return
		}
		sameAsAny(t, &header{base: 5, lastDelta: last, baseTime: 7, count: count}, body, want{from: from, end: end, maxRecord: 100})
	})
}

// BenchmarkRecords reads rows of numbers without keys and headers.
func BenchmarkRecords(b *testing.B) {
	values := make([]string, 1000)
	for i := range values {
		values[i] = string(make([]byte, 500))
	}
	batch := encodedPlain(b, values)
	h, err := parseHeader(batch)
	if err != nil {
		b.Fatal(err)
	}
	out := &sources.Batch{}
	for b.Loop() {
		out.Reset()
		if err := appendRecords(&h, batch, headerSize, h.size, want{end: 1 << 40, maxRecord: 1 << 20}, out); err != nil {
			b.Fatal(err)
		}
	}
}
