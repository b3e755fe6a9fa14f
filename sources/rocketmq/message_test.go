package rocketmq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/headrace/headrace/sources"
)

// stored encodes a message as a broker does.
type stored struct {
	magic               uint32
	queue, flags        int
	host                byte // the last byte of the born host
	offset, place, born int64
	topic               string
	body                []byte
	properties          string
}

func (s stored) encode() []byte {
	if s.magic == 0 {
		s.magic = magicV1
	}
	b := make([]byte, 4)
	u32 := func(v int) { b = binary.BigEndian.AppendUint32(b, uint32(v)) }
	u64 := func(v int64) { b = binary.BigEndian.AppendUint64(b, uint64(v)) }
	b = binary.BigEndian.AppendUint32(b, s.magic)
	u32(int(crc32.ChecksumIEEE(s.body) & 0x7fffffff))
	u32(s.queue)
	u32(77)
	u64(s.offset)
	u64(s.place)
	u32(s.flags)
	u64(s.born)
	b = append(append(b, make([]byte, 7+12*(s.flags>>4&1))...), s.host)
	u64(s.born + 5)
	b = append(b, make([]byte, 8+12*(s.flags>>5&1))...)
	u32(0)
	u64(0)
	u32(len(s.body))
	b = append(b, s.body...)
	if s.magic == magicV1 {
		b = append(b, byte(len(s.topic)))
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s.topic)))
	}
	b = append(b, s.topic...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.properties)))
	b = append(b, s.properties...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

var clicks = partition{"c1", "b0", "clicks", 3}

func record(t *testing.T, s stored, most int64) (sources.Batch, error) {
	t.Helper()
	var m message
	b := s.encode()
	if err := m.read(b); err != nil {
		return sources.Batch{}, err
	}
	if m.size != len(b) {
		t.Errorf("its size is %d of %d", m.size, len(b))
	}
	if err := m.check(b, clicks); err != nil {
		return sources.Batch{}, err
	}
	var out sources.Batch
	return out, m.appendRecord(b, most, false, &out)
}

func TestAMessageIsReadWhateverItsHostsAndItsTopicAre(t *testing.T) {
	for _, magic := range []uint32{magicV1, magicV2} {
		for _, hosts := range []int{0, 0x10, 0x20, 0x30} {
			s := stored{magic: magic, queue: 3, flags: hosts, offset: 9, place: 1234, born: 1_700_000_000_000, topic: "clicks", body: []byte("hello"),
				properties: "TAGS\x01a\x02KEYS\x01k1 k2\x02city\x01Köln"}
			b := s.encode()
			var m message
			if err := m.read(b); err != nil {
				t.Fatal(err)
			}
			if m.place != 1234 || m.stored != s.born+5 || !m.tagged(b, []string{"x", "a"}) || m.tagged(b, []string{"ab", ""}) {
				t.Errorf("the message was read as %+v", m)
			}
			var out sources.Batch
			if err := m.appendRecord(b, 5, false, &out); err != nil {
				t.Fatal(err)
			}
			r := out.Recs[0]
			text := func(p [2]int32) string { return string(out.Arena[p[0]:p[1]]) }
			if r.Offset != 9 || r.Next != 10 || r.Time != s.born || text(r.Value) != "hello" || text(r.Key) != "k1 k2" || len(r.Headers) != 3 ||
				text(r.Headers[2].Key) != "city" || text(r.Headers[2].Value) != "Köln" {
				t.Errorf("%+v of %q", r, out.Arena)
			}
		}
	}
}

func TestEveryCompressionIsUndone(t *testing.T) {
	text := []byte(strings.Repeat("a click of a user, ", 200))
	var z, l bytes.Buffer
	zw := zlib.NewWriter(&z)
	_, _ = zw.Write(text)
	_ = zw.Close()
	lw := lz4.NewWriter(&l)
	_, _ = lw.Write(text)
	_ = lw.Close()
	sw, _ := zstd.NewWriter(nil)
	for name, s := range map[string]stored{
		"zlib, of an old client": {flags: 1, body: z.Bytes()},
		"zlib":                   {flags: 1 | 3<<8, body: z.Bytes()},
		"lz4":                    {flags: 1 | 1<<8, body: l.Bytes()},
		"zstd":                   {flags: 1 | 2<<8, body: sw.EncodeAll(text, nil)},
	} {
		s.queue, s.topic = 3, "clicks"
		for range 2 { // the second time reuses the decompressor
			out, err := record(t, s, int64(len(text)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if r := out.Recs[0]; !bytes.Equal(out.Arena[r.Value[0]:r.Value[1]], text) {
				t.Errorf("%s: another text", name)
			}
		}
		if large, is := errors.AsType[*tooLarge](second(record(t, s, int64(len(text))-1))); !is || large.size != int64(len(text)) {
			t.Errorf("%s, one byte over the limit: %v", name, large)
		}
		s.body = s.body[:len(s.body)/2]
		if _, err := record(t, s, 1<<20); !errors.Is(err, errMessage) {
			t.Errorf("%s, the half of it: %v", name, err)
		}
	}
	if _, err := record(t, stored{queue: 3, topic: "clicks", flags: 1 | 5<<8, body: text}, 1<<20); !errors.Is(err, errMessage) {
		t.Errorf("an unknown compression: %v", err)
	}
}

// A few bytes may claim that they unpack to very many. That memory is not allocated before the claim is
// checked.
func TestFewBytesThatClaimMuchMemoryGetLittle(t *testing.T) {
	window := func(log byte) []byte { return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 9, 0, 0, 'x'} }
	length := func(n uint32) []byte { // a zstd frame of one segment, whose window is as large as its content
		return append(binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, n), 9, 0, 0, 'x')
	}
	for _, c := range []struct {
		name string
		body []byte
		want error
	}{
		{"a window of 8 MiB", window(23), nil},
		{"a window of 16 MiB", window(24), errWindow},
		{"a window of 512 MiB", window(29), errWindow},
		{"a length of 512 MiB", length(512 << 20), errLong},
		{"a length of 12 MiB, of one segment", length(12 << 20), errWindow},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := inflate(1|2<<8, nil, c.body, 16<<20)
		runtime.ReadMemStats(&after)
		if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; !errors.Is(err, c.want) || err == nil && string(b) != "x" || taken > 16 {
			t.Errorf("%s: %q, %v, with %d MiB", c.name, b, err, taken)
		}
	}
	_, err := record(t, stored{queue: 3, topic: "clicks", flags: 1 | 2<<8, body: window(29)}, 100)
	c := &cursor{s: &Source{}, p: clicks, at: 17}
	said := c.damaged(err).Error()
	for _, word := range []string{"clicks/b0/3", "17", "8 MiB", "level up to 19", "start_offsets"} {
		if !strings.Contains(said, word) {
			t.Errorf("%q does not say %s", said, word)
		}
	}
}

func second(_ sources.Batch, err error) error { return err }

func TestAMessageOfAnotherQueueOrWithAnotherBodyIsRefused(t *testing.T) {
	good := stored{queue: 3, topic: "clicks", body: []byte("body")}
	for name, change := range map[string]func(s *stored){
		"queue": func(s *stored) { s.queue = 2 },
		"topic": func(s *stored) { s.topic = "click" },
		"batch": func(s *stored) { s.flags = flagBatchInside },
	} {
		s := good
		change(&s)
		if _, err := record(t, s, 100); err == nil {
			t.Errorf("a message with another %s was accepted", name)
		}
	}
	b := good.encode()
	b[bytes.Index(b, good.body)]++
	var m message
	if err := m.read(b); err != nil {
		t.Fatal(err)
	}
	if err := m.check(b, clicks); !errors.Is(err, errMessage) {
		t.Errorf("a body with another checksum: %v", err)
	}
}

// FuzzMessages reads any bytes as messages or an error, and checks that no piece lies outside the bytes.
func FuzzMessages(f *testing.F) {
	f.Add(stored{topic: "clicks", queue: 3, body: []byte("x"), properties: "a\x01b\x02"}.encode())
	f.Add(slices.Concat(stored{topic: "clicks", queue: 3, flags: 0x31}.encode(), stored{magic: magicV2, topic: "t", flags: 0x101}.encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out sources.Batch
		for len(b) > 0 {
			var m message
			if m.read(b) != nil {
				return
			}
			if m.size < fixedSize || m.size > len(b) {
				t.Fatalf("a message of %d bytes in %d", m.size, len(b))
			}
			_ = m.check(b, clicks)
			m.tagged(b, []string{"a"})
			if m.appendRecord(b, 1<<16, false, &out) == nil {
				r := out.Recs[len(out.Recs)-1]
				for _, p := range append([][2]int32{r.Key, r.Value}, headerPieces(r)...) {
					if p[0] < 0 || p[0] > p[1] || int(p[1]) > len(out.Arena) {
						t.Fatalf("a piece at %v of %d bytes", p, len(out.Arena))
					}
				}
			}
			b = b[m.size:]
		}
	})
}

func headerPieces(r sources.Record) (all [][2]int32) {
	for _, h := range r.Headers {
		all = append(all, h.Key, h.Value)
	}
	return all
}

func TestDamageOfAnyByteIsNoPanicAndNoOtherBody(t *testing.T) {
	s := stored{topic: "clicks", queue: 3, offset: 7, body: []byte("the body of the message"), properties: "TAGS\x01a\x02"}
	good := s.encode()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		b := slices.Clone(good)
		b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		var m message
		var out sources.Batch
		if m.read(b) != nil || m.check(b, clicks) != nil || m.flags&1 != 0 || m.appendRecord(b, 100, false, &out) != nil {
			continue
		}
		if r := out.Recs[0]; string(out.Arena[r.Value[0]:r.Value[1]]) != string(s.body) {
			t.Fatalf("the body is %q", out.Arena[r.Value[0]:r.Value[1]])
		}
	}
}

func FuzzLocator(f *testing.F) {
	f.Add(clicks.locator(print{5, 6}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, seen, err := parseLocator(b)
		if err == nil && !bytes.Equal(p.locator(seen), b) {
			t.Errorf("%x is read as %+v", b, p)
		}
	})
}

func TestAMessageAboveThePlannedOnesIsOfAnotherTopic(t *testing.T) {
	f := print{end: 100, place: 5000}
	for _, c := range []struct {
		m    message
		fits bool
	}{
		{message{queueOffset: 99, place: 5000}, true},
		{message{queueOffset: 10, place: 400}, true},
		{message{queueOffset: 10, place: 5001}, false},
		{message{queueOffset: 100, place: 9000}, true},
	} {
		if got := f.fits(&c.m); got != c.fits {
			t.Errorf("%+v: %v", c.m, got)
		}
	}
	if !(print{}).fits(&message{queueOffset: 3, place: 9}) {
		t.Error("a message does not fit a place without a fingerprint")
	}
}
