package cut

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxVirtualRanks of a dataset. Each keeps a table of its segments.
const MaxVirtualRanks = 1024

// VirtualIdentity is the identity of virtual rank v (from 0) of n in a partition of
// a source: "files:clicks#3/8".
func VirtualIdentity(source string, v, n int) string {
	return fmt.Sprintf("%s#%d/%d", source, v, n)
}

// SourceIdentity is the inverse: the source's own identity, and v. v is -1 where
// the identity names no virtual rank of n.
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

// VirtualRank is the source's own identity of p, and the virtual rank of a
// bit_exact dataset that reads it: 0 where there are no virtual ranks, -1 where
// the identity names none.
func (d *Dataset) VirtualRank(p *Partition) (source string, rank int) {
	if d.Shuffle == nil || d.Shuffle.VirtualRanks == 0 {
		return p.Identity, 0
	}
	return SourceIdentity(p.Identity, d.Shuffle.VirtualRanks)
}

// BlocksOf counts the blocks that a virtual rank reads of n: all of them, where
// there are no virtual ranks.
func (s *Shuffle) BlocksOf(rank int, n int64) int64 {
	every := int64(s.VirtualRanks)
	if every == 0 {
		return n
	}
	return (n - int64(rank) + every - 1) / every
}
