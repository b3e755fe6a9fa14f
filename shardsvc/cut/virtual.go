package cut

import (
	"fmt"
	"strconv"
	"strings"
)

// VirtualIdentity is the identity of virtual rank v (from 0) of n in a partition of
// a source: "files:clicks#3/8".
func VirtualIdentity(source string, v, n int) string {
	return fmt.Sprintf("%s#%d/%d", source, v, n)
}

// SourceIdentity is the inverse of VirtualIdentity. If the identity names no virtual
// rank of n, it returns the identity unchanged and v = -1.
func SourceIdentity(identity string, n uint32) (source string, v int) {
	rest, ok := strings.CutSuffix(identity, "/"+strconv.FormatUint(uint64(n), 10))
	i := strings.LastIndexByte(rest, '#')
	if !ok || i < 1 {
		return identity, -1
	}
	number, err := strconv.ParseUint(rest[i+1:], 10, 32)
	if err != nil || number >= uint64(n) || rest[i+1:] != strconv.FormatUint(number, 10) {
		return identity, -1
	}
	return rest[:i], int(number)
}

// VirtualRank returns the source's own identity of p and the number of its virtual
// rank. rank is 0 if the dataset has no virtual ranks, and -1 if it has some and the
// identity names none of them.
func (d *Dataset) VirtualRank(p *Partition) (source string, rank int) {
	if d.Shuffle == nil || d.Shuffle.VirtualRanks == 0 {
		return p.Identity, 0
	}
	return SourceIdentity(p.Identity, d.Shuffle.VirtualRanks)
}

// BlocksOf returns how many of n blocks a virtual rank reads: every block if there are
// no virtual ranks. Of 10 blocks and 4 virtual ranks, ranks 0 and 1 read 3, ranks 2
// and 3 read 2.
func (s *Shuffle) BlocksOf(rank int, n int64) int64 {
	every := int64(s.VirtualRanks)
	if every == 0 {
		return n
	}
	return (n - int64(rank) + every - 1) / every
}
