package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// maxVirtualRanks of a dataset.
const maxVirtualRanks = 1024

// VirtualRank is what the source calls p, and which virtual rank of a bit_exact
// dataset reads it, "files:clicks" and 3 for "files:clicks#3/8": 0 where there is
// none of them, -1 where the identity names none.
func (d *Dataset) VirtualRank(p *Partition) (source string, rank int) {
	if d.Shuffle == nil || d.Shuffle.VirtualRanks == 0 {
		return p.Identity, 0
	}
	source, text, ok := cutLast(p.Identity, '#')
	number, _, _ := strings.Cut(text, "/")
	rank, err := strconv.Atoi(number)
	if !ok || source == "" || err != nil || rank < 0 || rank >= int(d.Shuffle.VirtualRanks) || text != fmt.Sprintf("%d/%d", rank, d.Shuffle.VirtualRanks) {
		return p.Identity, -1
	}
	return source, rank
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// BlocksOf counts the blocks that a virtual rank reads of n: all, where there are
// no virtual ranks.
func (s *Shuffle) BlocksOf(rank int, n int64) int64 {
	every := int64(s.VirtualRanks)
	if every == 0 {
		return n
	}
	return (n - int64(rank) + every - 1) / every
}
