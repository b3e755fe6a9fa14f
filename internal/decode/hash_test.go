package decode

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

var rewrite = flag.Bool("rewrite", false, "write the vectors anew instead of checking them")

const vectors = "../../api/vectors"

// Hash64 is hash64 of docs/PROTOCOL.md for one value.
func Hash64(value []byte, buckets int64, salt string) int64 {
	return newHasher(buckets, salt).bytes(value)
}

// hashVector is one line of api/vectors/hash64.json; value is UTF-8.
type hashVector struct {
	Value   string `json:"value"`
	Salt    string `json:"salt"`
	Buckets int64  `json:"buckets"`
	Hash    int64  `json:"hash"`
}

func TestHash64Vectors(t *testing.T) {
	var list []hashVector
	for _, salt := range []string{"", "C1", "item_id", "a salt of 16 byt", "a salt that is so long that XXH64's wide loop runs"} {
		for _, value := range []string{"", "0", "a", "68fd1e64", "1234567", "123456789", "0123456789abcdef", "a value of exactly 31 bytes....",
			"a value of exactly 32 bytes.....", "a value that is longer than the thirty-two bytes of one stripe of XXH64", "Zürich", "日本語"} {
			for _, buckets := range []int64{0, 1, 2, 1000, 1 << 20, 1<<62 + 1, 1<<63 - 1} {
				list = append(list, hashVector{value, salt, buckets, Hash64([]byte(value), buckets, salt)})
			}
		}
	}
	golden(t, filepath.Join(vectors, "hash64.json"), list)
}

// golden compares v with a file of JSON, or writes it with -rewrite.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	var text []byte
	if list, ok := v.([]hashVector); ok { // one a line
		text = append(text, "[\n"...)
		for i, h := range list {
			line, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, ' '), line...)
			if i+1 < len(list) {
				text = append(text, ',')
			}
			text = append(text, '\n')
		}
		text = append(text, "]\n"...)
	} else {
		var err error
		if text, err = json.MarshalIndent(v, "", " "); err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
	}
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v; go test ./internal/decode -rewrite writes it", err)
	}
	if string(want) != string(text) {
		t.Fatalf("%s differs from the output of this code: the wire has changed; if that is meant, run with -rewrite", name)
	}
}

func FuzzHash64IsXXH64OfSaltAndValue(f *testing.F) {
	f.Add([]byte("68fd1e64"), "C1", uint64(1000))
	f.Add([]byte(""), "", uint64(0))
	f.Fuzz(func(t *testing.T, value []byte, salt string, buckets uint64) {
		sameHash(t, value, salt, int64(buckets>>1))
	})
}

func sameHash(t *testing.T, value []byte, salt string, buckets int64) {
	t.Helper()
	full := xxhash.Sum64(append([]byte(salt+"\x1f"), value...))
	want := int64(full)
	if buckets > 0 {
		want = int64(full % uint64(buckets))
	}
	if got := Hash64(value, buckets, salt); got != want {
		t.Fatalf("hash64(%q, %d, %q) = %d, want %d", value, buckets, salt, got, want)
	}
	room := append(append([]byte{}, value...), make([]byte, pad)...)
	h := newHasher(buckets, salt)
	if got := int64(h.remainder(h.sum(unsafe.Pointer(unsafe.SliceData(room)), 0, len(value)))); got != want {
		t.Fatalf("in place: hash64(%q, %d, %q) = %d, want %d", value, buckets, salt, got, want)
	}
}

func TestHash64OfEveryLengthAndSalt(t *testing.T) {
	r := seeded(t)
	for s := range 40 {
		salt := make([]byte, s)
		for i := range salt {
			salt[i] = byte(r.Uint32())
		}
		for n := range 70 {
			value := make([]byte, n)
			for i := range value {
				value[i] = byte(r.Uint32())
			}
			sameHash(t, value, string(salt), r.Int64()>>r.IntN(63))
		}
	}
}

func TestRemainderNeedsOneCorrectionAtMost(t *testing.T) {
	r := seeded(t)
	for range 200000 {
		buckets, v := r.Int64()>>r.IntN(62)+1, r.Uint64()
		if r.IntN(8) == 0 {
			v = uint64(buckets) * (v / uint64(buckets)) // a multiple of buckets, where the quotient changes
			v -= uint64(r.IntN(2))
		}
		h := newHasher(buckets, "")
		if got, want := h.remainder(v), v%uint64(buckets); got != want {
			t.Fatalf("%d mod %d = %d, want %d", v, buckets, got, want)
		}
	}
}
