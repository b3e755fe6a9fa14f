package manifest

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/minio/crc64nvme"
)

// resealed gives text the right checksum, so that the fuzzer gets past that check.
func resealed(b []byte) []byte {
	if i := bytes.LastIndex(b, []byte(sumKey)); i > 0 {
		b = b[:i:i]
	}
	return append(b[:len(b):len(b)], sumKey+CRC64(crc64nvme.Checksum(b)).String()+sumEnd...)
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(vectors + "/*_*.json")
	if err != nil || len(files) < 20 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = resealed(b)
		}
		m, err := Parse(b)
		if err != nil {
			if kindOf(err) == "" {
				t.Fatalf("the error has no kind: %v", err)
			}
			return
		}
		// An accepted manifest can be written, and is the same when it is read again.
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("a manifest was read, but cannot be written: %v", err)
		}
		n, err := Parse(again)
		if err != nil {
			t.Fatalf("a manifest was written, but cannot be read: %v", err)
		}
		if third, err := n.Encode(); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("a manifest changed when it was written and read: %v\n%s\n%s", err, again, third)
		}
	})
}

func FuzzParsePart(f *testing.F) {
	p := &Part{Cut: 7, Step: 130, Rank: 1, WorldSize: 3, Files: []File{{Path: "a/b", Size: 3, CRC: 9}}, State: []byte(`{"a":1}`)}
	b, err := p.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePart(resealed(b))
		if err != nil {
			return
		}
		again, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if q, err := ParsePart(again); err != nil || !reflect.DeepEqual(p.Files, q.Files) {
			t.Fatalf("the part %+v changed to %+v when it was written and read (%v)", p, q, err)
		}
	})
}
