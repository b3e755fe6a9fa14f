package avrofile

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

const clicks = `{"type":"record","name":"Click","fields":[{"name":"id","type":"long"},{"name":"word","type":["null","string"]},{"name":"tags","type":{"type":"array","items":"int"}}]}`

func varint(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func sized(b []byte, text string) []byte { return append(varint(b, int64(len(text))), text...) }

// click is a record of the schema above.
func click(id int64) []byte {
	b := varint(nil, id)
	if id%3 == 0 {
		b = varint(b, 0)
	} else {
		b = sized(varint(b, 1), fmt.Sprintf("word %d", id%97))
	}
	if n := id % 4; n > 0 {
		b = varint(b, n)
		for k := range n {
			b = varint(b, id*k)
		}
	}
	return varint(b, 0)
}

// written is a container; blocks has the number of clicks in each block.
func written(t testing.TB, codec string, blocks ...int) []byte {
	t.Helper()
	b := varint([]byte(magic), 2)
	b = sized(sized(b, "avro.schema"), clicks)
	b = sized(sized(b, "avro.codec"), codec)
	b = append(varint(b, 0), "0123456789abcdef"...)
	id := int64(0)
	for _, n := range blocks {
		var plain []byte
		for range n {
			plain = append(plain, click(id)...)
			id++
		}
		packed := packed(t, codec, plain)
		b = append(varint(varint(b, int64(n)), int64(len(packed))), packed...)
		b = append(b, "0123456789abcdef"...)
	}
	return b
}

func packed(t testing.TB, codec string, plain []byte) []byte {
	t.Helper()
	switch codec {
	case "deflate":
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, 6)
		if err == nil {
			_, err = w.Write(plain)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	case "snappy":
		return binary.BigEndian.AppendUint32(s2.EncodeSnappy(nil, plain), crc32.ChecksumIEEE(plain))
	case "zstandard":
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(plain, nil)
	}
	return plain
}

// records reads all records of a file.
func records(b []byte) (all [][]byte, err error) {
	r := bytes.NewReader(b)
	f, err := Open(r, int64(len(b)))
	if err != nil {
		return nil, err
	}
	var plain []byte
	for at := f.Data; ; {
		k, err := f.Block(r, at)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if plain, err = f.Read(r, k, plain); err != nil {
			return all, err
		}
		p := 0
		for range k.Rows {
			end, err := f.End(plain, p)
			if err != nil {
				return all, err
			}
			all, p = append(all, bytes.Clone(plain[p:end])), end
			if len(all) > 1<<16 {
				return all, nil
			}
		}
		if p != len(plain) {
			return all, fmt.Errorf("%d bytes are left in the block at byte %d", len(plain)-p, at)
		}
		if k.Next <= at {
			return all, fmt.Errorf("the block at byte %d ends at %d", at, k.Next)
		}
		at = k.Next
	}
}

func TestEveryCodecGivesTheRecordsThatWereWritten(t *testing.T) {
	for _, codec := range codecs {
		all, err := records(written(t, codec, 100, 0, 1, 3000))
		if err != nil || len(all) != 3101 {
			t.Fatalf("%s: %d records: %v", codec, len(all), err)
		}
		for i, r := range all {
			if !bytes.Equal(r, click(int64(i))) {
				t.Fatalf("%s: record %d is %q, want %q", codec, i, r, click(int64(i)))
			}
		}
	}
}

// A header may be larger than the first read.
func TestALargeHeaderIsRead(t *testing.T) {
	b := varint([]byte(magic), 3)
	b = sized(sized(b, "avro.schema"), clicks)
	b = sized(sized(b, "note"), strings.Repeat("x", 700<<10))
	b = sized(sized(b, "avro.codec"), "null")
	b = append(varint(b, 0), "0123456789abcdef"...)
	b = append(append(varint(varint(b, 1), int64(len(click(7)))), click(7)...), "0123456789abcdef"...)
	if all, err := records(b); err != nil || len(all) != 1 || !bytes.Equal(all[0], click(7)) {
		t.Errorf("%q, %v", all, err)
	}
}

func TestWhatIsWrongWithAnAvroFileIsNamed(t *testing.T) {
	good := written(t, "snappy", 50, 50)
	f, err := Open(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	first, err := f.Block(bytes.NewReader(good), f.Data)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
	for want, b := range map[string][]byte{
		"it begins with \"hello\"":              []byte("hello"),
		"it begins with \"\"":                   {},
		"it ends within its header":             good[:40],
		"it was cut short":                      good[:len(good)-5],
		"does not end with the file's marker":   with(func(b []byte) []byte { b[first.Next-1]++; return b }),
		"its checksum is":                       with(func(b []byte) []byte { b[first.Next-syncSize-1]++; return b }),
		"which is not read: write it with one":  bytes.Replace(good, []byte("\x0csnappy"), []byte("\x0cbrotli"), 1),
		"its header names no schema":            bytes.Replace(good, []byte("avro.schema"), []byte("avro.schemo"), 1),
		"its schema: ":                          bytes.Replace(good, []byte(`"long"`), []byte(`"lung"`), 1),
		"bytes, and at most 268435456 are read": with(func(b []byte) []byte { return append(varint(varint(b[:f.Data], 1), 1<<40), b[first.Next:]...) }),
		"is damaged: it has -2 records":         with(func(b []byte) []byte { return append(varint(varint(b[:f.Data], -2), 1), b[first.Next:]...) }),
	} {
		if _, err := records(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	plain := written(t, "null", 3)
	f, err = Open(bytes.NewReader(plain), int64(len(plain)))
	if err != nil {
		t.Fatal(err)
	}
	for want, block := range map[string][]byte{
		"a negative length":                varint(varint(varint(nil, 1), 1), -5),
		"a value of 9 bytes lies there":    varint(varint(varint(nil, 1), 1), 9),
		"branch 2 of a union that has 2":   varint(varint(nil, 1), 2),
		"a number ends too late":           {0x80},
		"a block of an array has -4 eleme": varint(varint(varint(varint(nil, 1), 0), -4), -1),
	} {
		if _, err := f.End(block, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A schema may give a small record very many values, or very deeply nested ones.
func TestARecordCannotKeepAReaderForLong(t *testing.T) {
	for want, c := range map[string]struct{ schema, record string }{
		"more than 65536 elements that take no bytes": {`{"type":"array","items":"null"}`, string(varint(nil, 1<<40))},
		"more than 1024 deep":                         {`{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}`, strings.Repeat("\x02", 5000)},
	} {
		b := varint([]byte(magic), 1)
		b = append(varint(sized(sized(b, "avro.schema"), c.schema), 0), "0123456789abcdef"...)
		b = append(append(varint(varint(b, 1), int64(len(c.record))), c.record...), "0123456789abcdef"...)
		if _, err := records(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A block of a few bytes may claim any number of records.
func TestABlockHasNoMoreRecordsThanItsBytesHold(t *testing.T) {
	nothing := `{"type":"record","name":"R","fields":[{"name":"n","type":"null"},{"name":"e","type":{"type":"record","name":"E","fields":[]}},{"name":"f","type":"E"}]}`
	rows := func(schema, codec string, rows int64, plain []byte) error {
		b := varint([]byte(magic), 2)
		b = append(varint(sized(sized(sized(sized(b, "avro.schema"), schema), "avro.codec"), codec), 0), "0123456789abcdef"...)
		body := packed(t, codec, plain)
		b = append(append(varint(varint(b, rows), int64(len(body))), body...), "0123456789abcdef"...)
		all, err := records(b)
		if err == nil && int64(len(all)) != rows {
			t.Errorf("%d records, want %d", len(all), rows)
		}
		return err
	}
	for _, codec := range []string{"null", "deflate"} {
		if err := rows(nothing, codec, maxEmpty, nil); err != nil {
			t.Error(err)
		}
		if err := rows(nothing, codec, 1<<49, nil); err == nil || !strings.Contains(err.Error(), "has 562949953421312 records; if records may have no bytes, at most 65536 of a block are read") {
			t.Errorf("got the error %v, want one with %q", err, "has 562949953421312 records; if records may have no bytes, at most 65536 of a block are read")
		}
		if err := rows(`"boolean"`, codec, 100, make([]byte, 100)); err != nil {
			t.Error(err)
		}
		for _, n := range []int64{101, 1 << 49} {
			if err := rows(`"boolean"`, codec, n, make([]byte, 100)); err == nil || !strings.Contains(err.Error(), "and each has one at least") {
				t.Error(n, err)
			}
		}
	}
	list := `{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}`
	if err := rows(list, "null", 3, []byte{0, 0, 0}); err != nil {
		t.Error(err)
	}
}

// FuzzContainer reads any bytes as records that lie one after the other, or as an error.
func FuzzContainer(f *testing.F) {
	for _, codec := range codecs {
		f.Add(written(f, codec, 3, 2))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := records(b)
		size := 0
		for _, r := range all {
			size += len(r)
		}
		if err == nil && size > 0 && !bytes.HasPrefix(b, []byte(magic)) {
			t.Fatalf("%d records of %q", len(all), b[:4])
		}
	})
}
