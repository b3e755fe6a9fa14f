package clicklog

import (
	"math"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

const (
	Ints       = 13
	Categories = 26
	// Buckets and Salt are the hash settings of the quick start's dataset. The checksums of the truth are
	// over hashed categories, as trainers see them.
	Buckets = 1 << 15
	Salt    = "clicks"
	// Missing is the decoded value of a missing integer.
	Missing = -1

	quantiles = 4096
	bias      = -1.35
)

// vocabulary is the number of ids in each column, like those of the public Criteo sample.
var vocabulary = [Categories]int{
	1400, 550, 120_000, 60_000, 300, 20, 11_000, 600, 3, 35_000, 5_000, 90_000, 3_200,
	26, 8_000, 70_000, 10, 4_000, 1_800, 4, 80_000, 15, 15, 30_000, 70, 25_000,
}

// id is an id of a category: all that one draw needs, in half a cache line.
type id struct {
	text   [8]byte
	check  uint64     // its summand of the record's checksum
	weight [2]float32 // before and after the drift
	keep   uint32     // alias method: keep this id below, else take alias
	alias  uint32
}

// integer is one of the equally likely values of an integer column.
type integer struct {
	text   [10]byte
	n      uint8 // length of its text; 0: missing
	weight float32
	check  uint64
}

// world is everything that is drawn once per seed. It does not change after newWorld.
type world struct {
	ids   [Categories][]id
	shift [Categories]int // after the drift the r-th most popular id is r+shift
	ints  [Ints][quantiles]integer
}

// Key is the factor of value j in a record's checksum: 0 is the label, 1..13 the integers, 14..39 the
// hashed categories. The sum is mod 2^64.
func Key(j int) uint64 { return splitmix(uint64(j) + 1) }

func newWorld(seed uint64) *world {
	w := &world{}
	for c := range w.ids {
		w.drawCategory(c, random(splitmix(seed^0xC1)+uint64(c)))
	}
	for j := range w.ints {
		w.drawInteger(j, random(splitmix(seed^0x17)+uint64(j)))
	}
	return w
}

func (w *world) drawCategory(c int, r random) {
	n := vocabulary[c]
	ids := make([]id, n)
	key := Key(1 + Ints + c)
	hash := xxhash.New()
	for i := range ids {
		v := r.next()
		const digits = "0123456789abcdef"
		for d := range ids[i].text {
			ids[i].text[d] = digits[v>>(4*d)&15]
		}
		hash.Reset()
		_, _ = hash.WriteString(Salt + "\x1f")
		_, _ = hash.Write(ids[i].text[:])
		ids[i].check = hash.Sum64() % Buckets * key
		before := float32(0.27 * r.normal())
		ids[i].weight = [2]float32{before, before}
		if c%3 == 0 {
			ids[i].weight[1] = float32(0.27 * r.normal())
		}
	}
	if c%2 == 0 {
		w.shift[c] = n / 3
	}
	share := zipf(n, 1.05+0.25*r.float())
	for phase, shift := range []int{0, w.shift[c]} {
		centre(ids, share, phase, shift)
	}
	alias(ids, share)
	w.ids[c] = ids
}

// zipf gives the share of each rank k, which is proportional to 1/(k+1)^s.
func zipf(n int, s float64) []float64 {
	p := make([]float64, n)
	sum := 0.0
	for k := range p {
		p[k] = math.Pow(float64(k+1), -s)
		sum += p[k]
	}
	for k := range p {
		p[k] /= sum
	}
	return p
}

// centre shifts the weights of a phase so that their mean over the draws is 0. So the share of clicks is
// the same for each seed, and on both sides of the drift.
func centre(ids []id, share []float64, phase, shift int) {
	mean := 0.0
	for k, p := range share {
		mean += p * float64(ids[(k+shift)%len(ids)].weight[phase])
	}
	for k := range ids {
		ids[k].weight[phase] -= float32(mean)
	}
}

// alias prepares draws in constant time (Walker's alias method, in Vose's construction). It destroys p.
func alias(ids []id, p []float64) {
	n := len(ids)
	for k := range p {
		p[k] *= float64(n)
	}
	small, large := make([]uint32, 0, n), make([]uint32, 0, n)
	for k := range p {
		if p[k] < 1 {
			small = append(small, uint32(k))
		} else {
			large = append(large, uint32(k))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		lo, hi := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		ids[lo].keep, ids[lo].alias = uint32(p[lo]*math.MaxUint32), hi
		if p[hi] -= 1 - p[lo]; p[hi] < 1 {
			large = large[:len(large)-1]
			small = append(small, hi)
		}
	}
	for _, k := range append(small, large...) {
		ids[k].keep, ids[k].alias = math.MaxUint32, k
	}
}

func (w *world) drawInteger(j int, r random) {
	missing := int(quantiles * 0.45 * r.float())
	if j%4 == 0 {
		missing = 0
	}
	mu, width := 0.5+4*r.float(), 0.6+1.2*r.float()
	slope := 0.35 * r.normal()
	key := Key(1 + j)
	sum := float32(0)
	table := &w.ints[j]
	for q := range table {
		value := int64(Missing)
		if q >= missing {
			value = min(int64(math.Exp(mu+width*r.normal())), 999_999)
			table[q].n = uint8(len(strconv.AppendInt(table[q].text[:0], value, 10)))
		}
		table[q].check = uint64(value) * key
		table[q].weight = float32(slope * (math.Log2(float64(value+2)) / 8))
		sum += table[q].weight
	}
	for q := range table {
		table[q].weight -= sum / quantiles
	}
}

// random is splitmix64. It has one word of state, which is good enough for a click log.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9E3779B97F4A7C15
	return mix(uint64(*r))
}

func (r *random) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// normal is the sum of 12 uniform numbers, minus 6.
func (r *random) normal() float64 {
	sum := -6.0
	for range 12 {
		sum += r.float()
	}
	return sum
}

func splitmix(z uint64) uint64 { return mix(z + 0x9E3779B97F4A7C15) }

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
