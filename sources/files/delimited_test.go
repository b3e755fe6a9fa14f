package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

var ofMessages = Framing{Kind: Delimited, EmptyLines: true}

func delimited(record []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(record))), record...)
}

// delimitedHarness writes delimited messages. Every third one contains bytes that look like messages.
func delimitedHarness(b blocks) sourcetest.Harness {
	h := harness(ofMessages, "", "", "fast", b)
	h.Encode = func(rng *rand.Rand, text []byte) []byte {
		if rng.IntN(3) > 0 {
			return text
		}
		return append(delimited(delimited(text)), delimited(nil)...)
	}
	return h
}

func TestDelimitedMessagesPassTheSuite(t *testing.T) {
	sourcetest.Run(t, delimitedHarness(defaultBlocks))
}

func TestDelimitedMessagesInTinyBlocksPassTheSuite(t *testing.T) {
	h := delimitedHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, h)
}

func TestGzippedDelimitedMessagesPassTheSuite(t *testing.T) {
	h := delimitedHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, packedHarness(h, ".pb.gz", packGzip))
}

// Messages are read in the form that Protobuf's own package writes, also messages without a byte.
func TestMessagesAreReadAsProtodelimWritesThem(t *testing.T) {
	var b bytes.Buffer
	var want []string
	for i := range 300 {
		m := wrapperspb.String(strings.Repeat("x", i))
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			t.Fatal(err)
		}
		want = append(want, m.Value)
	}
	s := one(t, b.Bytes(), ofMessages, tinyBlocks)
	segs, err := listAll(t, s)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range segs {
		records, err := readRange(t, s, g, g.Start, g.End)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			var m wrapperspb.StringValue
			if err := protodelim.UnmarshalFrom(bytes.NewReader(delimited(r.Value)), &m); err != nil || m.Value != want[n] {
				t.Fatalf("message %d is %q, %v", n, m.Value, err)
			}
			n++
		}
	}
	if n != len(want) {
		t.Errorf("read %d of %d messages", n, len(want))
	}
}

func TestWhatIsNoDelimitedMessageIsToldWithItsPlace(t *testing.T) {
	good := append(delimited([]byte("one")), delimited([]byte("two"))...)
	for what, c := range map[string]struct {
		more string
		says string
	}{
		"cut short":         {"\x20abc", "goes on after the end of the file"},
		"cut in its length": {"\x80", "goes on after the end of the file"},
		"too long a length": {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + strings.Repeat("x", 30), "no length of a message begins here"},
		"more than 2 GiB":   {"\xff\xff\xff\xff\x7f" + strings.Repeat("x", 30), "Protobuf allows 2 GiB"},
	} {
		for _, bl := range []blocks{defaultBlocks, tinyBlocks} {
			s := one(t, append(bytes.Clone(good), c.more...), ofMessages, bl)
			_, err := listAll(t, s)
			m, ok := errors.AsType[*sources.Malformed](err)
			if !ok || !strings.Contains(err.Error(), c.says) || m.Position.Offset != int64(len(good)) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// FuzzDelimited reads any bytes as records or an error, and checks that two parts give the same.
func FuzzDelimited(f *testing.F) {
	two := append(delimited([]byte("one")), delimited([]byte("another one"))...)
	f.Add(two, uint16(7), uint8(3))
	f.Add(two[:len(two)-1], uint16(5), uint8(200))
	f.Add([]byte("\xff\xff\xff\xff\x7f1234567890"), uint16(1), uint8(9))
	f.Fuzz(func(t *testing.T, content []byte, cut uint16, block uint8) {
		bl := blocks{read: 16 + int64(block), records: 3, overrun: 2, segment: 40, every: 10, scan: 1 + int64(block)/2}
		s := one(t, content, ofMessages, bl)
		segs, _ := listAll(t, s)
		for _, g := range segs {
			whole, err := readRange(t, s, g, g.Start, g.End)
			if err != nil {
				continue
			}
			mid := min(max(int64(cut), g.Start), g.End)
			left, err1 := readRange(t, s, g, g.Start, mid)
			right, err2 := readRange(t, s, g, mid, g.End)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			compareParts(t, whole, append(left, right...))
			for _, r := range whole {
				if !bytes.Contains(content, r.Value) {
					t.Fatalf("%q was read, but no such record is there", r.Value)
				}
			}
		}
	})
}

// A message has no line: bytes that look like line ends are part of it.
func TestAMessageIsNotSaidToLieOnALine(t *testing.T) {
	dir := tree(t, map[string]string{"a.pb": string(delimited([]byte("x\n\n\n"))) + string(delimited([]byte("y")))})
	spec := &dataset.Spec{Decode: dataset.DecodeSpec{Format: "protobuf"}}
	if place := (&Spec{Root: dir}).Place(spec, "a.pb", 5); place != "a.pb" {
		t.Errorf("a message is at %q", place)
	}
}
