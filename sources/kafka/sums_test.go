package kafka

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// answerOf is an answer to a Fetch as ask returns it: without its size, with its tags.
func answerOf(records []byte, aborted int) []byte {
	w := &writer{}
	w.i32(correlation)
	w.tags()
	w.i32(0) // throttle
	w.i16(codeNone)
	w.i32(0) // session
	w.length(1)
	w.id(topicID{1})
	w.length(1)
	w.i32(5)
	w.i16(codeNone)
	w.i64(100)
	w.i64(90)
	w.i64(10)
	w.length(aborted)
	for i := range aborted {
		w.i64(int64(i))
		w.i64(20)
		w.tags()
	}
	w.i32(-1)
	w.text(string(records))
	w.tags()
	w.tags()
	w.tags()
	return w.b
}

// inPieces gives an answer to s in random pieces.
func inPieces(s *sums, answer []byte, rng *rand.Rand) {
	memory := make([]byte, len(answer))
	for have := 0; have < len(answer); {
		next := min(len(answer), have+1+rng.IntN(1+rng.IntN(len(answer))))
		copy(memory[have:next], answer[have:next])
		s.came(memory[:next])
		have = next
	}
}

func TestBatchesAreCheckedWhileTheyComeInPieces(t *testing.T) {
	rng := seeded(t)
	for range 300 {
		var records []byte
		var ends []int
		for i := range 1 + rng.IntN(5) {
			records = append(records, encoded(t, int64(i), 0, fmt.Sprint("value", i), string(make([]byte, rng.IntN(3000))))...)
			ends = append(ends, len(records))
		}
		records = append(records, encoded(t, 9, 0, "cut short")[:rng.IntN(70)]...)
		answer := answerOf(records, rng.IntN(300))
		from := len(answer) - 3 - len(records)
		var s sums
		inPieces(&s, answer, rng)
		if want := from + ends[len(ends)-1]; s.good != want {
			t.Fatalf("the batches up to byte %d are good, but those up to %d count as good", want, s.good)
		}
		f, err := parseFetch(&reader{b: answer, at: 5}, partition{topic: topicID{1}, number: 5})
		if err != nil || len(f.records) == 0 || &f.records[0] != &answer[from] {
			t.Fatalf("%d bytes of records, %v; want those that begin at %d", len(f.records), err, from)
		}

		// Change a byte of the k-th batch that its checksum covers, or a byte of the checksum.
		k := rng.IntN(len(ends))
		begin := 0
		if k > 0 {
			begin = ends[k-1]
		}
		damaged := bytes.Clone(answer)
		damaged[from+begin+17+rng.IntN(ends[k]-begin-17)] ^= 1
		s = sums{}
		inPieces(&s, damaged, rng)
		if s.good != from+begin {
			t.Fatalf("batch %d is damaged, so the batches up to byte %d are good, but those up to %d count as good", k, from+begin, s.good)
		}
	}
}

func TestAnAnswerWithoutRecordsHasNoGoodBatch(t *testing.T) {
	for _, answer := range [][]byte{nil, {0, 0, 0, 1}, answerOf(nil, 0), answerOf(nil, 3), answerOf([]byte("short"), 0)} {
		var s sums
		s.came(answer)
		if s.good > len(answer) || s.good > 0 && s.good != s.from {
			t.Errorf("%x has no batch, but batches up to byte %d count as good", answer, s.good)
		}
	}
}

// FuzzSums checks for any bytes, in any pieces: a batch that counts as good matches its checksum, and take
// finds only whole batches there.
func FuzzSums(f *testing.F) {
	records := append(encoded(f, 7, 0, "a", "bb"), encoded(f, 9, 0, "c")...)
	f.Add(answerOf(records, 1), uint64(1))
	f.Fuzz(func(t *testing.T, answer []byte, seed uint64) {
		if len(answer) == 0 {
			return
		}
		var s sums
		inPieces(&s, answer, rand.New(rand.NewPCG(seed, 0)))
		if s.good == 0 {
			return
		}
		if s.good > len(answer) {
			t.Fatalf("%d of %d bytes are good", s.good, len(answer))
		}
		for rest := answer[s.from:s.good]; len(rest) > 0; {
			size := int(int32(uint32(rest[8])<<24|uint32(rest[9])<<16|uint32(rest[10])<<8|uint32(rest[11]))) + 12
			if size < headerSize || size > len(rest) {
				t.Fatalf("a batch of %d bytes in %d good ones", size, len(rest))
			}
			if err := checkSum(rest[:size]); err != nil {
				t.Fatal(err)
			}
			rest = rest[size:]
		}
	})
}
