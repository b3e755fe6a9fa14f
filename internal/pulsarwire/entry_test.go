package pulsarwire

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// stored is an entry in the form in which a broker sends it, after the command.
func stored(metadata fields, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(metadata)))
	b = append(append(b, metadata...), payload...)
	head := binary.BigEndian.AppendUint16(nil, magicChecksum)
	return append(binary.BigEndian.AppendUint32(head, crc32.Checksum(b, castagnoli)), b...)
}

func metadata() fields {
	return fields(nil).text(1, "producer").number(2, 7).number(3, 1_700_000_000_000)
}

func keyValue(k, v string) fields { return fields(nil).text(1, k).text(2, v) }

// batched is the payload of a batch, before compression.
func batched(values ...string) []byte {
	var b []byte
	for i, v := range values {
		m := fields(nil)
		if i%2 == 1 {
			m = m.bytes(1, keyValue("p", v)).text(2, "key "+v).number(5, uint64(1000+i))
		}
		m = m.number(3, uint64(len(v)))
		if v == "" {
			m = m.flag(9, true)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(m)))
		b = append(append(b, m...), v...)
	}
	return b
}

func compress(t testing.TB, codec int, b []byte) []byte {
	t.Helper()
	switch codec {
	case 1:
		out := make([]byte, lz4.CompressBlockBound(len(b)))
		n, err := lz4.CompressBlock(b, out, nil)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		return out[:n]
	case 2:
		var out bytes.Buffer
		w := zlib.NewWriter(&out)
		_, _ = w.Write(b)
		_ = w.Flush() // without Close, as the Java client does
		return out.Bytes()
	case 3:
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(b, nil)
	case 4:
		return snappy.Encode(nil, b)
	}
	return b
}

// texts opens an entry and lists its messages.
func texts(e *Entry) (all []string, err error) {
	if err := e.Open(1 << 20); err != nil {
		return nil, err
	}
	for e.Read() < e.Messages {
		m, err := e.Next()
		if err != nil {
			return all, err
		}
		text := fmt.Sprintf("%s=%s null=%v at %d/%d", m.Key, m.Value, m.Null, m.Event, m.Published)
		for _, p := range m.Properties {
			text += fmt.Sprintf(" %s:%s", p.Key, p.Value)
		}
		all = append(all, text)
	}
	return all, nil
}

func TestTheMessagesOfAnEntryAreReadWhateverItsCompression(t *testing.T) {
	values := []string{"a", "b", "", strings.Repeat("long ", 1000)}
	want := []string{
		"=a null=false at 0/1700000000000",
		"key b=b null=false at 1001/1700000000000 p:b",
		"= null=true at 0/1700000000000",
		"key " + values[3] + "=" + values[3] + " null=false at 1003/1700000000000 p:" + values[3],
	}
	for codec := range 5 {
		plain := batched(values...)
		m := metadata().number(8, uint64(codec)).number(9, uint64(len(plain))).number(11, 4)
		e := Entry{frame: stored(m, compress(t, codec, plain))}
		if got, err := texts(&e); err != nil || !slices.Equal(got, want) {
			t.Errorf("codec %d: %q, %v", codec, got, err)
		}
		if got, err := texts(&e); err != nil || !slices.Equal(got, want) { // an entry can be opened twice
			t.Errorf("codec %d, again: %q, %v", codec, got, err)
		}
		if n := e.count(); n != 4 {
			t.Errorf("codec %d: the entry counts as %d messages", codec, n)
		}
		e.Release()
	}
}

func TestAnEntryOfOneMessage(t *testing.T) {
	m := metadata().bytes(4, keyValue("x", "1")).bytes(4, keyValue("y", "2")).text(6, "k").number(12, 5)
	for text, e := range map[string]Entry{
		"k=v null=false at 5/1700000000000 x:1 y:2": {frame: stored(m, []byte("v"))},
		"k= null=false at 5/1700000000000 x:1 y:2":  {frame: stored(m, nil)},
		"k= null=true at 5/1700000000000 x:1 y:2":   {frame: stored(m.flag(25, true), nil)},
		"= null=false at 0/1700000000000":           {frame: append([]byte{0x0e, 0x02, 0, 0, 0, 2, 0x08, 1}, stored(metadata(), nil)...)},
	} {
		if got, err := texts(&e); err != nil || len(got) != 1 || got[0] != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
}

// Pulsar stores a key of bytes as base64 text, with a flag. It is read as the bytes.
func TestAKeyThatWasSetAsBytesIsGivenAsBytes(t *testing.T) {
	stored1 := func(m fields) Entry { return Entry{frame: stored(m, []byte("v"))} }
	const rest = "v null=false at 0/1700000000000"
	for want, e := range map[string]Entry{
		"\x00\xffk=" + rest: stored1(metadata().text(6, "AP9r").flag(17, true)),
		"AP9r=" + rest:      stored1(metadata().text(6, "AP9r").flag(17, false)),
		"AP9=" + rest:       stored1(metadata().text(6, "AP9").flag(17, true)), // no valid base64
		"=" + rest:          stored1(metadata().flag(17, true)),
	} {
		for range 2 { // an entry can be opened twice
			if got, err := texts(&e); err != nil || !slices.Equal(got, []string{want}) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
	}
	var b []byte
	for _, m := range []fields{fields(nil).text(2, "AP9r").flag(6, true), fields(nil).text(2, "AP9r"), fields(nil).text(2, "YQ==").flag(6, true), nil} {
		m = m.number(3, 1)
		b = append(append(binary.BigEndian.AppendUint32(b, uint32(len(m))), m...), 'v')
	}
	e := Entry{frame: stored(metadata().number(11, 4), b)}
	for range 2 {
		if got, err := texts(&e); err != nil || !slices.Equal(got, []string{"\x00\xffk=" + rest, "AP9r=" + rest, "a=" + rest, "=" + rest}) {
			t.Errorf("in a batch: %q, %v", got, err)
		}
	}
}

// An empty value is read as empty, whatever bytes a codec makes of it.
func TestAnEmptyValueIsEmptyWhateverItsCompression(t *testing.T) {
	for codec := range 5 {
		small := []byte{}
		switch codec {
		case 1:
			small = []byte{0} // an LZ4 block without content
		case 2, 3, 4:
			small = compress(t, codec, nil)
		}
		e := Entry{frame: stored(metadata().number(8, uint64(codec)).number(9, 0), small)}
		if got, err := texts(&e); err != nil || !slices.Equal(got, []string{"= null=false at 0/1700000000000"}) {
			t.Errorf("codec %d: %q, %v", codec, got, err)
		}
	}
}

func TestAChunkSaysWhichItIsAndTheLastOneBecomesTheMessage(t *testing.T) {
	whole := bytes.Repeat([]byte("chunk"), 100)
	m := metadata().number(8, 3).number(9, uint64(len(whole))).text(26, "u").number(27, 2)
	small := compress(t, 3, whole)
	parts := [][]byte{small[:5], small[5:]}
	var all []byte
	for i, part := range parts {
		e := Entry{frame: stored(slices.Clone(m).number(28, uint64(len(small))).number(29, uint64(i)), part)}
		if err := e.Open(1 << 20); err != nil {
			t.Fatal(err)
		}
		if want := (Chunk{"u", int32(i), 2, int64(len(small)), int64(len(whole))}); e.Chunk != want {
			t.Errorf("%+v, want %+v", e.Chunk, want)
		}
		if all = append(all, e.Stored()...); i == 0 {
			continue
		}
		if err := e.Assembled(all, 1<<20); err != nil {
			t.Fatal(err)
		}
		if m, err := e.Next(); err != nil || !bytes.Equal(m.Value, whole) {
			t.Errorf("%d bytes, %v", len(m.Value), err)
		}
	}
}

func TestADamagedEntryIsAnErrorThatSaysWhy(t *testing.T) {
	plain := batched("one", "two")
	good := stored(metadata().number(11, 2), plain)
	for what, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"a bit is flipped":                {flip(good, len(good)-1), "checksum"},
		"the metadata is cut off":         {good[:20], "checksum"},
		"the frame is empty":              {nil, "metadata"},
		"the metadata is longer":          {[]byte{0, 0, 0, 9, 1}, "longer than the entry"},
		"there are fewer messages":        {stored(metadata().number(11, 3), plain), "cut off"},
		"a message is longer":             {stored(metadata().number(11, 2), plain[:len(plain)-1]), "says that it has 3 bytes"},
		"no message":                      {stored(metadata().number(11, 0), plain), "0 messages"},
		"too many messages":               {stored(metadata().number(11, messagesMost+1), plain), "messages"},
		"a chunk behind the last":         {stored(metadata().text(26, "u").number(27, 2).number(29, 2), nil), "part 2 of 2"},
		"an unknown compression":          {stored(metadata().number(8, 9).number(9, 4), []byte("abcd")), "compression 9"},
		"fewer bytes than it says":        {stored(metadata().number(8, 4).number(9, 9).number(11, 2), snappy.Encode(nil, plain)), "its metadata says 9"},
		"more bytes of zstd than it says": {stored(metadata().number(8, 3).number(9, 9).number(11, 2), compress(t, 3, plain)), "decompressing"},
		"more bytes of zlib than it says": {stored(metadata().number(8, 2).number(9, 9).number(11, 2), compress(t, 2, plain)), "its metadata says 9"},
		"lz4 of garbage":                  {stored(metadata().number(8, 1).number(9, 9), []byte("\xff\xff\xff")), "decompressing"},
	} {
		e := Entry{frame: c.frame}
		_, err := texts(&e)
		if _, ok := errors.AsType[*Damaged](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
	e := Entry{frame: stored(metadata().number(8, 3).number(9, 1<<64-5), []byte("small"))} // its size does not fit into 32 bits
	if err := e.Open(1 << 20); err == nil {
		t.Error("a size that is negative as an int64 was accepted")
	}
	e = Entry{frame: stored(metadata().number(8, 3).number(9, 1<<30), []byte("small"))}
	if large, ok := errors.AsType[*TooLarge](e.Open(1 << 20)); !ok || large.Size != 1<<30 {
		t.Errorf("%+v, but the entry claims to have 1 GiB", large)
	}
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

// FuzzEntry reads or refuses any bytes as an entry, and checks that its messages lie inside.
func FuzzEntry(f *testing.F) {
	plain := batched("one", "two", "")
	for codec := range 5 {
		m := metadata().number(8, uint64(codec)).number(9, uint64(len(plain))).number(11, 3)
		f.Add([]byte(m), compress(f, codec, plain))
	}
	f.Add([]byte(metadata().text(26, "u").number(27, 2).number(28, 9).number(29, 1)), []byte("part"))
	f.Add([]byte(metadata().number(8, 4).number(9, 1<<64-5)), []byte("small"))
	f.Add([]byte(metadata().bytes(13, keyValue("k", "v"))), []byte("secret"))
	f.Fuzz(func(t *testing.T, m, payload []byte) {
		const most = 1 << 16
		e := Entry{frame: stored(m, payload)}
		if n := e.count(); n < 1 || n > messagesMost {
			t.Fatalf("the entry counts as %d messages", n)
		}
		if err := e.Open(most); err != nil {
			return
		}
		if e.Chunk.Of > 0 && !e.Encrypted {
			_ = e.Assembled(e.Stored(), most)
		}
		if e.Encrypted {
			return
		}
		bytes := 0
		for e.Read() < e.Messages {
			m, err := e.Next()
			if err != nil {
				break
			}
			if bytes += len(m.Value); bytes > most {
				t.Fatalf("%d bytes of messages in an entry of at most %d", bytes, most)
			}
		}
		e.Release()
	})
}

// FuzzFrame checks that any bytes of a connection are read as a command or an error. It also checks that no
// more memory is reserved than the largest frame of a broker takes.
func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, base(cmdPing, nil)))
	f.Add(appendFrame(nil, lookupCommand("t", 1, true)))
	message := base(cmdMessage, fields(nil).number(1, 3).bytes(2, fields(nil).number(1, 5).number(2, 6)))
	whole := binary.BigEndian.AppendUint32(nil, uint32(4+len(message)+4))
	whole = binary.BigEndian.AppendUint32(whole, uint32(len(message)))
	f.Add(append(append(whole, message...), "body"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		var scratch []byte
		for {
			_, payload, err := readFrame(r, 1<<16, &scratch)
			if err != nil {
				break
			}
			if len(payload) > len(b) || len(scratch) > frameRest {
				t.Fatalf("%d bytes of %d, and a command of %d", len(payload), len(b), len(scratch))
			}
			release(payload)
		}
	})
}
