package chunk

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"
)

func some(rng *rand.Rand, n int) []Record {
	text := func() []byte { return bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(200)) }
	all := make([]Record, n)
	for i := range all {
		r := Record{Value: text()}
		if rng.IntN(2) == 0 {
			r.Key = text()
		}
		if rng.IntN(2) == 0 {
			r.Time = rng.Int64N(1<<41) - 1<<40
		}
		if rng.IntN(4) == 0 {
			r.Headers = []Field{{[]byte("a"), text()}, {text(), nil}}
			r.Headers[1].Value = []byte{}
		}
		if rng.IntN(8) == 0 {
			r.Null, r.Value = true, nil
		}
		all[i] = r
	}
	return all
}

func build(all []Record) []byte {
	var b Builder
	for _, r := range all {
		b.Add(r)
	}
	return b.Chunk()
}

func TestAChunkIsReadAsItWasWritten(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		all := some(rng, 1+rng.IntN(300))
		b := build(all)
		o, err := Open(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if got := o.Record(i); !reflect.DeepEqual(got, all[i]) {
				t.Fatalf("record %d is %+v, was %+v", i, got, all[i])
			}
		}
		if o.Records != len(all) {
			t.Fatalf("%d records of %d", o.Records, len(all))
		}
	}
}

// A chunk that a client in another language wrote may be uncompressed, or compressed with zlib.
func TestAChunkOfAnotherWriterIsRead(t *testing.T) {
	all := some(rand.New(rand.NewPCG(1, 2)), 100)
	var b Builder
	for _, r := range all {
		b.Add(r)
	}
	for _, codec := range []byte{None, Zlib} {
		body := b.raw
		if codec == Zlib {
			body = zlibOf(b.raw)
		}
		c := header(codec, len(all), len(b.raw), body)
		o, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Record(99); !reflect.DeepEqual(got, all[99]) {
			t.Errorf("codec %d: %+v, want %+v", codec, got, all[99])
		}
		packed := o.Pack(c)
		if p, err := Open(packed); err != nil || p.Records != 100 || len(packed) > len(c) || codec == None && p.Codec != Zstd {
			t.Errorf("codec %d: packed: %v, codec %d, %d bytes of %d", codec, err, p.Codec, len(packed), len(c))
		}
	}
}

func zlibOf(b []byte) []byte {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(b)
	_ = w.Close()
	return z.Bytes()
}

func header(codec byte, records, raw int, body []byte) []byte {
	c := make([]byte, HeaderSize)
	copy(c, magic)
	c[4] = codec
	le.PutUint32(c[8:], uint32(records))
	le.PutUint32(c[12:], uint32(raw))
	le.PutUint32(c[16:], uint32(len(body)))
	le.PutUint32(c[20:], crc32.ChecksumIEEE(body))
	le.PutUint32(c[24:], crc32.ChecksumIEEE(c[:24]))
	return append(c, body...)
}

func TestADamagedChunkIsRefused(t *testing.T) {
	good := build(some(rand.New(rand.NewPCG(3, 4)), 20))
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if _, err := Open(bad); err == nil {
			t.Fatalf("byte %d was changed, but the chunk was accepted", i)
		}
		if _, err := Open(good[:i]); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted as a chunk", i, len(good))
		}
	}
	raw := []byte{0, 1, 'x'}
	zlibbed := zlibOf(raw)
	wrongSum := bytes.Clone(zlibbed)
	wrongSum[len(wrongSum)-1] ^= 1
	for name, c := range map[string][]byte{
		"more than it says":     header(None, 1, 3, []byte{0, 1, 'x', 0}),
		"bytes after":           header(None, 1, 4, []byte{0, 1, 'x', 0}),
		"a record too many":     header(None, 2, 3, raw),
		"no record":             header(None, 0, 3, raw),
		"unknown flags":         header(None, 1, 3, []byte{16, 1, 'x'}),
		"unknown codec":         header(7, 1, 3, raw),
		"a bomb":                header(Zstd, 1, 100, encoder().EncodeAll(make([]byte, 1<<20), nil)),
		"a bomb of zlib":        header(Zlib, 1, 100, zlibOf(make([]byte, 1<<20))),
		"less than it says":     header(Zlib, 1, MaxBytes, zlibbed),
		"no checksum of zlib":   header(Zlib, 1, 3, zlibbed[:len(zlibbed)-4]),
		"half a checksum":       header(Zlib, 1, 3, zlibbed[:len(zlibbed)-2]),
		"a wrong checksum":      header(Zlib, 1, 3, wrongSum),
		"half of zlib":          header(Zlib, 1, 3, zlibbed[:5]),
		"nothing of zlib":       header(Zlib, 1, 3, nil),
		"more than is bearable": header(None, 1, MaxBytes+1, raw),
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("%s: the chunk was accepted", name)
		}
	}
	for _, c := range [][]byte{header(None, 1, 3, raw), header(Zlib, 1, 3, zlibbed)} {
		if _, err := Open(c); err != nil {
			t.Error(err)
		}
	}
}

func TestLocatorsAndKeysSayWhatTheyWereMadeOf(t *testing.T) {
	k := NewKey("s0me", 3, "sink/4/17", time.Now())
	c := build([]Record{{Value: []byte("v")}})
	h, err := ReadHeader(c)
	if err != nil {
		t.Fatal(err)
	}
	l := Locator{k.String(), int64(len(c)), 1, h.Sum}
	got, key, err := ParseLocator(l.String())
	if err != nil || got != l || key != k {
		t.Fatalf("%+v %+v %v, want %+v %+v", got, key, err, l, k)
	}
	if err := l.Fits(c); err != nil {
		t.Error(err)
	}
	if key.Transaction != TransactionSum("sink/4/17") || key.PartitionID() != "landing:s0me/3" {
		t.Errorf("the key names another transaction or partition: %+v", key)
	}
	for n := range l.String() {
		if _, _, err := ParseLocator(l.String()[:n]); err == nil {
			t.Errorf("the first %d bytes of a locator were accepted as a locator", n)
		}
	}
	for _, bad := range []string{"", "a/b", "../1/2/x-1-y", fmt.Sprint(k, "/.."), "s/01/0/x-5-y"} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q was accepted as a key", bad)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(build(some(rand.New(rand.NewPCG(3, 4)), 20)))
	f.Add(header(None, 1, 3, []byte{0, 1, 'x'}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Correct the checksums, so that the bytes that they cover are tested.
		if len(b) >= HeaderSize {
			b = bytes.Clone(b)
			copy(b, magic)
			le.PutUint32(b[16:], uint32(len(b)-HeaderSize))
			le.PutUint32(b[20:], crc32.ChecksumIEEE(b[HeaderSize:]))
			le.PutUint32(b[24:], crc32.ChecksumIEEE(b[:24]))
		}
		o, err := Open(b)
		if err != nil {
			return
		}
		var again Builder
		for i := range o.Records {
			again.Add(o.Record(i))
		}
		if p, err := Open(again.Chunk()); err != nil || p.Records != o.Records {
			t.Fatalf("written again: %v", err)
		}
	})
}

// A compressed frame that claims to be large gets no more memory than the chunk's header says.
func TestAFrameThatIsLargerThanItsHeaderSaysTakesNoMemory(t *testing.T) {
	packed := encoder().EncodeAll(make([]byte, 32<<20), nil)
	b := seal(make([]byte, 100), 1)
	b = append(b[:HeaderSize], packed...)
	b[4] = Zstd
	le.PutUint32(b[16:], uint32(len(packed)))
	le.PutUint32(b[20:], crc32.ChecksumIEEE(packed))
	le.PutUint32(b[24:], crc32.ChecksumIEEE(b[:24]))
	if _, err := Open(seal(make([]byte, 100), 1)); err == nil { // also makes the decoder, whose memory must not count below
		t.Fatal("100 bytes of 0 were accepted as a record")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Open(b)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 4<<20 {
		t.Errorf("%d bytes were allocated for a chunk of %d bytes, %v", took, len(b), err)
	}
}
