package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// encoded is a batch that another library has encoded.
func encoded(t testing.TB, base int64, attributes protocol.Attributes, values ...string) []byte {
	t.Helper()
	records := make([]protocol.Record, len(values))
	for i, v := range values {
		records[i] = protocol.Record{Offset: base + int64(i), Time: time.UnixMilli(1000 + int64(i)),
			Key: protocol.NewBytes(fmt.Appendf(nil, "k%d", i)), Value: protocol.NewBytes([]byte(v)),
			Headers: []protocol.Header{{Key: "h", Value: []byte(v)}}}
	}
	set := protocol.RecordSet{Version: 2, Attributes: attributes, Records: protocol.NewRecordReader(records...)}
	var b bytes.Buffer
	if _, err := set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	batch := b.Bytes()[4:] // after the size of the set
	binary.BigEndian.PutUint64(batch, uint64(base))
	return batch
}

// walk reads all batches in b as a cursor does.
func walk(b []byte, w want, limit int) (*sources.Batch, error) {
	out := &sources.Batch{}
	for {
		h, err := parseHeader(b)
		if errors.Is(err, errPartial) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if err := checkSum(b[:h.size]); err != nil {
			return out, err
		}
		from := len(out.Arena)
		if out.Arena, err = inflate(h.codec(), out.Arena, b[headerSize:h.size], limit); err != nil {
			return out, err
		}
		if err := appendRecords(&h, out.Arena, from, len(out.Arena), w, out); err != nil {
			return out, err
		}
		b = b[h.size:]
	}
}

var anyRecord = want{end: 1 << 62, maxRecord: 1 << 20}

func TestBatchesOfEveryCodecAreReadAsTheyWereWritten(t *testing.T) {
	for codec := range protocol.Attributes(5) {
		t.Run(kafkago.Compression(codec).String(), func(t *testing.T) {
			long := strings.Repeat("long ", 30_000)
			b := append(encoded(t, 7, codec, "a", "", long), encoded(t, 10, 0, "d")...)
			b = append(b, encoded(t, 11, codec, "cut short")[:70]...)
			got, err := walk(b, anyRecord, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, r := range got.Recs {
				v := string(got.Arena[r.Value[0]:r.Value[1]])
				if h := r.Headers; len(h) != 1 || string(got.Arena[h[0].Value[0]:h[0].Value[1]]) != v {
					t.Errorf("headers of %d: %v", r.Offset, h)
				}
				said = append(said, fmt.Sprintf("%d@%d %s=%s", r.Offset, r.Time, got.Arena[r.Key[0]:r.Key[1]], v))
			}
			if got, want := strings.Join(said, ", "), "7@1000 k0=a, 8@1001 k1=, 9@1002 k2="+long+", 10@1000 k0=d"; got != want {
				t.Errorf("read %.200s\nwant %.200s", got, want)
			}
		})
	}
}

func TestSnappyIsReadWithAndWithoutJavasFrames(t *testing.T) {
	text := []byte(strings.Repeat("snappy ", 1000))
	framed := append(bytes.Clone(xerial), 0, 0, 0, 1, 0, 0, 0, 1)
	for rest := text; len(rest) > 0; {
		n := min(len(rest), 3000)
		block := snappy.Encode(nil, rest[:n])
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(block)))
		framed = append(framed, block...)
		rest = rest[n:]
	}
	for name, src := range map[string][]byte{"bare": snappy.Encode(nil, text), "framed": framed} {
		got, err := inflate(2, []byte("before"), src, len(text))
		if err != nil || string(got) != "before"+string(text) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := inflate(2, nil, src, len(text)-1); !errors.Is(err, errInflated) {
			t.Errorf("%s over the limit: %v", name, err)
		}
		if _, err := inflate(2, nil, src[:len(src)-1], len(text)); err == nil {
			t.Errorf("%s cut short was read", name)
		}
	}
}

// A few bytes that decompress to very many are refused, and do not use up the memory of the process.
func TestABatchThatDecompressesToTooMuchIsRefused(t *testing.T) {
	for codec := protocol.Attributes(1); codec < 5; codec++ {
		b := encoded(t, 0, codec, strings.Repeat("x", 4<<20))
		if _, err := walk(b, want{end: 10, maxRecord: 8 << 20}, 1<<20); !errors.Is(err, errInflated) {
			t.Errorf("%v: %v", kafkago.Compression(codec), err)
		}
	}
}

func TestADamagedBatchIsNeverReadAsRecords(t *testing.T) {
	whole := encoded(t, 3, 0, "abc", "def")
	for i := crcFrom; i < len(whole); i++ {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		if got, err := walk(b, anyRecord, 1<<20); err == nil {
			t.Errorf("byte %d changed, and %d records were read", i, len(got.Recs))
		}
	}
	old := bytes.Clone(whole)
	old[16] = 1
	if _, err := walk(old, anyRecord, 1<<20); err == nil || !strings.Contains(err.Error(), "message format 1") {
		t.Errorf("an old format: got the error %v, want one with %q", err, "message format 1")
	}
}

func TestARecordOverTheLimitIsNamedAndThoseBeforeItAreThere(t *testing.T) {
	got, err := walk(encoded(t, 3, 0, "abc", strings.Repeat("y", 50), "z"), want{end: 100, maxRecord: 20}, 1<<20)
	var large *tooLarge
	if !errors.As(err, &large) || large.offset != 4 || large.size != 52 || len(got.Recs) != 1 {
		t.Errorf("%d records, %v", len(got.Recs), err)
	}
}

func TestARangeTakesOnlyItsRecords(t *testing.T) {
	got, err := walk(encoded(t, 3, 0, "a", "b", "c", "d"), want{from: 4, end: 6, maxRecord: 100}, 1<<20)
	if err != nil || len(got.Recs) != 2 || got.Recs[0].Offset != 4 || got.Recs[1].Offset != 5 {
		t.Errorf("%+v, %v", got.Recs, err)
	}
}

func TestAnswersThatAreCutShortAreErrors(t *testing.T) {
	w := &writer{}
	w.i32(0) // throttle
	w.i16(0)
	w.i32(0) // session
	w.length(1)
	w.id(topicID{1})
	w.length(1)
	w.i32(5)
	w.i16(0)
	w.i64(100)
	w.i64(90)
	w.i64(10)
	w.length(1)
	w.i64(7)
	w.i64(20)
	w.tags()
	w.i32(-1)
	w.text("records")
	w.tags()
	w.tags()
	p := partition{topic: topicID{1}, number: 5}
	f, err := parseFetch(&reader{b: w.b}, p)
	if err != nil || f.stable != 90 || string(f.records) != "records" || len(f.aborted) != 1 || f.aborted[0].first != 20 {
		t.Fatalf("%+v, %v", f, err)
	}
	if f.parted {
		t.Errorf("the logs part at offset %d", f.partedAt)
	}
	tagged := append([]byte{}, w.b[:len(w.b)-2]...)
	tagged = append(tagged, 2, 1, 3, 9, 9, 9, 0, 13, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 3, 232, 0, 0) // tag 1, then tag 0: epoch 4, offset 1000
	if f, err := parseFetch(&reader{b: tagged}, p); err != nil || f.partedAt != 1000 || !f.parted {
		t.Errorf("%+v, %v", f, err)
	}
	if &f.records[0] != &f.buf[bytes.Index(f.buf, []byte("records"))] {
		t.Error("the records are at another place of the answer")
	}
	for n := range len(w.b) - 2 { // the last two bytes are tags, which do not matter
		if _, err := parseFetch(&reader{b: w.b[:n]}, p); err == nil {
			t.Fatalf("the first %d of %d bytes are an answer", n, len(w.b))
		}
	}
	if _, err := parseFetch(&reader{b: w.b}, partition{topic: topicID{2}, number: 5}); !errors.Is(err, errAnswer) {
		t.Errorf("another topic: %v", err)
	}
	if _, err := parseFetch(&reader{b: w.b}, partition{topic: topicID{1}, number: 6}); !errors.Is(err, errAnswer) {
		t.Errorf("another partition: %v", err)
	}
}

func TestAbortedRecordsAreThoseOfOpenAbortedTransactions(t *testing.T) {
	const p, q = 10, 20
	data := func(producer, base int64) *header {
		return &header{base: base, lastDelta: 0, producer: producer, attributes: 16}
	}
	control := func(producer, base int64) *header {
		return &header{base: base, producer: producer, attributes: 16 | 32}
	}
	// A control batch holds one record: length, attributes, deltas, key, value, headers.
	marker := func(kind byte) []byte { return []byte{2 * 10, 0, 0, 0, 2 * 4, 0, 0, 0, kind, 0, 0} }
	a := newAborted([]abortedTxn{{q, 3}, {p, 1}, {p, 8}})
	for i, step := range []struct {
		h       *header
		records []byte
		skip    bool
	}{
		{data(p, 0), nil, false}, // of an earlier transaction, which was committed
		{data(p, 1), nil, true},
		{data(q, 2), nil, false},
		{data(q, 3), nil, true},
		{&header{base: 4, producer: -1}, nil, false},
		{control(p, 5), marker(0), true},
		{data(p, 6), nil, false},
		{control(p, 7), marker(1), true},
		{data(p, 8), nil, true},
		{control(q, 9), marker(1), true}, // a commit does not end an abort that is listed
		{data(q, 10), nil, true},
	} {
		if got := a.skip(step.h, step.records); got != step.skip {
			t.Errorf("step %d, offset %d: skipped %v, want %v", i, step.h.base, got, step.skip)
		}
	}
}

// A cursor returns io.EOF at the end of its range. So the error of a connection that has ended must not be
// io.EOF, however deep that is wrapped.
func TestAConnectionThatEndedIsNotTheEndOfARange(t *testing.T) {
	c := newClient(&Options{Brokers: []string{"127.0.0.1:1"}})
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, fmt.Errorf("reading: %w", io.EOF),
		fmt.Errorf("dial: %w", &net.OpError{Op: "read", Err: io.EOF})} {
		got := c.explain(t.Context(), err)
		var again *sources.Temporary
		if errors.Is(got, io.EOF) || !errors.As(got, &again) {
			t.Errorf("%v becomes %v, which counts as io.EOF", err, got)
		}
	}
}

// FuzzBatches checks for any bytes that the walk ends, stays in its memory, and keeps offsets in order.
func FuzzBatches(f *testing.F) {
	for codec := range protocol.Attributes(5) {
		f.Add(encoded(f, 7, codec, "a", "bb", "ccc"), true)
	}
	f.Add(append(encoded(f, 0, 0, "a"), encoded(f, 1, 0, "b")...), true)
	f.Add(append(encoded(f, 3472328296227680304, 0, "a"), encoded(f, 3467824697408774240, 0, "b")...), true)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if h, err := parseHeader(b); err == nil && mend {
			binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[crcFrom:h.size], castagnoli))
		}
		if next, _, last, err := overview(b); next < -1 || err != nil && next != -1 || next >= 0 && (last.to != next || last.from >= next) {
			t.Fatalf("the next offset is %d, the last run %+v, %v", next, last, err)
		}
		out, _ := walk(b, anyRecord, 1<<16)
		for _, r := range out.Recs {
			for _, p := range [][2]int32{r.Key, r.Value} {
				if p[0] < 0 || p[0] > p[1] || int(p[1]) > len(out.Arena) {
					t.Fatalf("a piece [%d, %d) of %d bytes", p[0], p[1], len(out.Arena))
				}
			}
			for _, h := range r.Headers {
				if h.Key[0] > h.Key[1] || h.Value[0] > h.Value[1] || int(max(h.Key[1], h.Value[1])) > len(out.Arena) {
					t.Fatalf("a header %v of %d bytes", h, len(out.Arena))
				}
			}
			if r.Offset < 0 {
				t.Fatalf("offset %d", r.Offset)
			}
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseFetch(&reader{b: b}, partition{}); err == nil && len(got.records) > len(b) {
			t.Fatal("the records reach beyond the answer")
		}
		_ = parseFetches(&reader{b: b}, func(_ headKey, got *fetched) {
			if len(got.records) > len(b) {
				t.Fatal("the records reach beyond the answer")
			}
		})
		_, topics := parseMetadata(&reader{b: b})
		if len(topics) > len(b) {
			t.Fatal("more topics than the answer has bytes for")
		}
		if sizes := map[string]int64{}; len(b) > 0 {
			if parseLogDirs(&reader{b: b}, sizes); len(sizes) > len(b) {
				t.Fatal("more partitions than the answer has bytes for")
			}
		}
		_, _, _ = parseEpochEnd(&reader{b: b})
		if p, err := parseLocator(b); err == nil && !bytes.Equal(p.locator(), b) {
			t.Fatalf("%+v has another locator", p)
		}
	})
}

// The memory of an answer goes to the batch that is made of it, or from a closed cursor to the next cursor,
// but never to both.
func TestMemoryThatABatchHoldsIsNotGivenToTheNextCursor(t *testing.T) {
	for name, c := range map[string]struct {
		from int64 // the batch has offsets 0 to 5, and one record, at 0
		want error
		kept bool
	}{
		"a record":  {0, nil, false},
		"no record": {3, io.EOF, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := encoded(t, 0, 0, "value")
			binary.BigEndian.PutUint32(b[23:], 5)
			binary.BigEndian.PutUint32(b[crcFrom-4:], crc32.Checksum(b[crcFrom:], castagnoli))
			s := &Source{o: Options{MaxRecord: 1 << 20}, spare: make(brokers.Spares, sparesMost)}
			cur := &cursor{s: s, at: c.from, r: sources.Range{End: 6}, cancel: func() {}, ahead: make(chan answer, 1)}
			cur.ahead <- answer{offset: c.from, fetched: &fetched{stable: 6, records: b, buf: b}}
			var into sources.Batch
			if err := cur.Next(t.Context(), &into); err != c.want {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err := cur.Close(); err != nil {
				t.Fatal(err)
			}
			memory := s.spare.Take()
			if (memory != nil) != c.kept {
				t.Errorf("the answer's memory is kept: %v", memory != nil)
			}
			if memory != nil && cap(into.Arena) > 0 && &memory[:1][0] == &into.Arena[:1][0] {
				t.Error("the batch and the next cursor have the same memory")
			}
		})
	}
}

// The checksum of a batch does not cover its base offset. If their order were not checked, a batch with a
// damaged offset would hide itself, or the batches after it.
func TestBatchesThatAreNotInOrderAreDamagedAndNoneOfThemIsHandedOut(t *testing.T) {
	for name, c := range map[string]struct {
		bases []int64
		says  string // the error; "": all are handed out
	}{
		"in order":               {[]int64{7, 8, 9}, ""},
		"the second goes back":   {[]int64{7, 1, 9}, "begins at offset 1 comes after offset 7"},
		"the second comes again": {[]int64{7, 7, 9}, "begins at offset 7 comes after offset 7"},
		"the first is too far":   {[]int64{1 << 40, 8, 9}, "begins at offset 8 comes after offset 1099511627776"},
		"near the end of int64":  {[]int64{1 << 61, 1<<61 - 1}, "begins at offset 2305843009213693951 comes after offset 2305843009213693952"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []byte
			for _, base := range c.bases {
				all = append(all, encoded(t, base, 0, "value")...)
			}
			s := &Source{o: Options{MaxRecord: 1 << 20}, spare: make(chan []byte, sparesMost), epochs: newEpochs()}
			cur := &cursor{s: s, p: partition{name: "clicks", number: 3}, at: 7, r: sources.Range{End: 10}, cancel: func() {},
				ahead: make(chan answer, 1), tries: checksumTries - 1}
			cur.ahead <- answer{offset: 7, fetched: &fetched{stable: 1 << 62, records: all, buf: all}}
			var into sources.Batch
			err := cur.Next(t.Context(), &into)
			if c.says == "" {
				if err != nil || len(into.Recs) != len(c.bases) {
					t.Fatalf("%d records, %v", len(into.Recs), err)
				}
				return
			}
			var malformed *sources.Malformed
			if !errors.As(err, &malformed) || malformed.Position.Offset != 7 || len(into.Recs) > 0 {
				t.Fatalf("%d records, %v", len(into.Recs), err)
			}
			for _, says := range []string{"clicks/3 at offset 7", c.says, "another replica"} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("it does not say %q: %v", says, err)
				}
			}
		})
	}
}

// BenchmarkWalk reads headers, checksums and records of a fetch of two batches, in place.
func BenchmarkWalk(b *testing.B) {
	values := make([]string, 1000)
	for i := range values {
		values[i] = strings.Repeat("v", 500)
	}
	plain := encodedPlain(b, values)
	all := append(bytes.Clone(plain), plain...)
	out := &sources.Batch{}
	b.SetBytes(int64(len(all)))
	for b.Loop() {
		out.Reset()
		for rest := all; len(rest) > 0; {
			h, err := parseHeader(rest)
			if err != nil {
				b.Fatal(err)
			}
			if err := checkSum(rest[:h.size]); err != nil {
				b.Fatal(err)
			}
			from := len(all) - len(rest) + headerSize
			if err := appendRecords(&h, all, from, from+h.size-headerSize, want{end: 1 << 40, maxRecord: 1 << 20}, out); err != nil {
				b.Fatal(err)
			}
			rest = rest[h.size:]
		}
		if len(out.Recs) != 2000 {
			b.Fatal(len(out.Recs))
		}
	}
}

// encodedPlain is a batch without keys and headers.
func encodedPlain(t testing.TB, values []string) []byte {
	t.Helper()
	records := make([]protocol.Record, len(values))
	for i, v := range values {
		records[i] = protocol.Record{Offset: int64(i), Time: time.UnixMilli(1000 + int64(i/100)), Value: protocol.NewBytes([]byte(v))}
	}
	set := protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(records...)}
	var b bytes.Buffer
	if _, err := set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()[4:]
}

func TestABatchThatStaysDamagedIsToldWithItsOffsetAndWaysOut(t *testing.T) {
	c := &cursor{s: &Source{}, p: partition{name: "clicks", number: 3}, at: 7, now: &answer{fetched: &fetched{}}}
	for range checksumTries - 1 {
		if err := c.damaged(errCRC); !errors.Is(err, errAgain) {
			t.Fatalf("got the error %v, want %v", err, errAgain)
		}
	}
	var malformed *sources.Malformed
	if err := c.damaged(errCRC); !errors.As(err, &malformed) || malformed.Position.Offset != 7 {
		t.Fatal(err)
	}
	for _, says := range []string{"clicks/3 at offset 7", errCRC.Error(), "fetched 3 times", "another replica", "start_offsets"} {
		if !strings.Contains(malformed.Error(), says) {
			t.Errorf("it does not say %q: %v", says, malformed)
		}
	}
}
