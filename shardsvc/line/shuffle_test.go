package line

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

var writeVectors = flag.Bool("write-vectors", false, "write api/vectors/shuffle.json")

const vectorsPath = "../../api/vectors/shuffle.json"

// shuffleVectors is the content of the file that every language's implementation must pass. All
// 64-bit numbers are decimal strings: JSON readers lose them otherwise.
type shuffleVectors struct {
	About        string             `json:"about"`
	Splitmix64   []splitmixVector   `json:"splitmix64"`
	Permutations []fullPermutation  `json:"permutations"`
	Spots        []spotsPermutation `json:"spots"`
}

type splitmixVector struct {
	In  string `json:"in"`
	Out string `json:"out"`
}

type permutationOf struct {
	Blocks string `json:"blocks"`
	Seed   string `json:"seed"`
	Pass   uint32 `json:"pass"`
}

type fullPermutation struct {
	permutationOf
	Order []uint64 `json:"order"` // order[i] is the block of the input that comes i-th
}

type spotsPermutation struct {
	permutationOf
	Spots [][2]string `json:"spots"` // place in the order, block of the input
}

func makeVectors() shuffleVectors {
	u := func(x uint64) string { return strconv.FormatUint(x, 10) }
	v := shuffleVectors{About: "docs/PROTOCOL.md, Shuffle: block i of the order is block P(i) of the input"}
	for _, x := range []uint64{0, 1, 2, 42, 1 << 32, 1<<63 - 1, 1<<64 - 1, 0x9E3779B97F4A7C15} {
		v.Splitmix64 = append(v.Splitmix64, splitmixVector{u(x), u(splitmix64(x))})
	}
	for _, n := range []uint64{1, 2, 3, 4, 5, 16, 17, 64, 100} {
		for _, seed := range []uint64{0, 1, 1<<64 - 1} {
			for _, pass := range []uint32{0, 1, 7} {
				p := NewPermutation(n, seed, pass)
				f := fullPermutation{permutationOf: permutationOf{u(n), u(seed), pass}}
				for i := range n {
					f.Order = append(f.Order, p.Block(i))
				}
				v.Permutations = append(v.Permutations, f)
			}
		}
	}
	for _, n := range []uint64{1000, 65536, 65537, 1_000_003, 1 << 32, 1<<40 + 1, 4_000_000_000_000} {
		for _, seed := range []uint64{7, 0xDEADBEEFCAFEF00D} {
			p := NewPermutation(n, seed, 3)
			s := spotsPermutation{permutationOf: permutationOf{u(n), u(seed), 3}}
			for _, i := range []uint64{0, 1, 2, 3, n / 3, n / 2, n - 2, n - 1} {
				s.Spots = append(s.Spots, [2]string{u(i), u(p.Block(i))})
			}
			v.Spots = append(v.Spots, s)
		}
	}
	return v
}

// TestShuffleVectorsHold: the permutation in the file is the one in use. A change of either
// would silently change the meaning of stored state.
func TestShuffleVectorsHold(t *testing.T) {
	if *writeVectors {
		b, err := json.Marshal(makeVectors())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsPath, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(vectorsPath)
	if err != nil {
		t.Fatal(err)
	}
	var v shuffleVectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, makeVectors()) {
		t.Fatal("api/vectors/shuffle.json and the code disagree")
	}
	// splitmix64's published first output of seed 0.
	if splitmix64(0) != 0xE220A8397B1DCDAF {
		t.Fatal("splitmix64(0)")
	}
}

func TestPermutationIsOneAndPlaceIsItsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 700).Draw(t, "n")
		p := NewPermutation(n, rapid.Uint64().Draw(t, "seed"), rapid.Uint32().Draw(t, "pass"))
		seen := make([]bool, n)
		for i := range n {
			b := p.Block(i)
			if b >= n || seen[b] || p.Place(b) != i {
				t.Fatalf("block(%d) = %d, place back %d", i, b, p.Place(b))
			}
			seen[b] = true
		}
	})
}

func TestPlaceIsTheInverseForLargeInputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 1<<62).Draw(t, "n")
		x := rapid.Uint64Range(0, n-1).Draw(t, "x")
		p := NewPermutation(n, rapid.Uint64().Draw(t, "seed"), 0)
		if p.Place(p.Block(x)) != x {
			t.Fatal("Place is not the inverse of the block's place in the order")
		}
	})
}

func TestDeadTailsAreCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.Int64Range(1, 12).Draw(t, "block")
		p := &Table{Complete: true, Blocks: Blocks{Size: block, Seed: 5, Every: 1}}
		for _, size := range rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 8).Draw(t, "sizes") {
			p.Extend(&sources.Segment{ID: int64(len(p.Segs)), End: size})
		}
		segs, blocks := p.Segs, p.Count
		if blocks == 0 {
			return
		}
		o := p.newOrder(0)
		dead := make([]bool, blocks*block)
		for i := range segs {
			for n := range (segs[i].End + block - 1) / block {
				at := int64(o.Perm.Place(uint64(segs[i].block + n)))
				for k := segs[i].End - n*block; k < block; k++ {
					dead[at*block+k] = true
				}
			}
		}
		sum := int64(0)
		for pos := range blocks*block + 1 {
			if got := o.below(pos); got != sum {
				t.Fatalf("below(%d) = %d, want %d", pos, got, sum)
			}
			if pos < blocks*block && dead[pos] {
				sum++
			}
		}
	})
}
