package stepfile

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// seal gives all parts of a file the right checksums. Without that, the checksum would find each
// changed byte, and the code after that check would never run.
func seal(b []byte) {
	if len(b) < aboutAt {
		return
	}
	if n := int64(binary.LittleEndian.Uint32(b[12:])); n <= int64(len(b)-aboutAt) {
		sum := crc32.Update(crc32.ChecksumIEEE(b[:headBytes-4]), crc32.IEEETable, b[aboutAt:aboutAt+n])
		binary.LittleEndian.PutUint32(b[headBytes-4:], sum)
	}
	for at := steppedAt; at < durableAt+2*markBytes; at += markBytes {
		copy(b[at+24:at+32], b[at:])
	}
	_, oldest, _ := mark(b[durableAt:])
	for at, n := uint64(oldest), 0; at > 0 && at < uint64(len(b)) && at+frameBytes <= uint64(len(b)) && n < 100; n++ {
		f := b[at:]
		size := binary.LittleEndian.Uint32(f[4:])
		if size < frameBytes || uint64(size) > uint64(len(f)) {
			return
		}
		var head [frameBytes]byte
		copy(head[:32], f)
		binary.LittleEndian.PutUint32(f[32:], crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, f[frameBytes:size]))
		at = binary.LittleEndian.Uint64(f[40:])
	}
}

func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("../../api/vectors/stepfiles/*.json")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var v struct{ File string }
		if err != nil || json.Unmarshal(text, &v) != nil {
			f.Fatal(path, err)
		}
		b, err := base64.StdEncoding.DecodeString(v.File)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed {
			seal(b)
		}
		s, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if s.Through < s.Durable || int(s.Through-s.Durable) > len(s.Batches) {
			t.Fatalf("the file has %d batches, but stepped is %d and durable %d", len(s.Batches), s.Through, s.Durable)
		}
		for i, b := range s.Batches {
			if b.Number != s.Durable+uint32(i)+1 || (b.Step != nil) != (b.Number <= s.Through) {
				t.Fatalf("batch %d is number %d, step %v", i, b.Number, b.Step)
			}
			for _, sp := range b.Spans {
				if sp.LeaseFrom < 0 || sp.LeaseTo <= sp.LeaseFrom || sp.Rows <= 0 {
					t.Fatalf("batch %d: span %+v", b.Number, sp)
				}
			}
		}
	})
}
