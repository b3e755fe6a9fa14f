package parquet

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/headrace/headrace/sources"
)

// A Reader reads one row group, and its columns need some MiB for what was read ahead and for
// pages. New memory costs the kernel more than reading takes here: it clears every page of it.
// So a Reader that ends leaves its buffers to the next ones.

// Buffers have 2^n bytes, from 2^leastSpare to 2^mostSpare. Larger ones are not kept.
const (
	leastSpare = 12
	mostSpare  = 22
)

// spares are the buffers that nobody uses, as pointers to their first byte, by n. The garbage
// collector takes those that nobody wants for a while.
var spares [mostSpare + 1]sync.Pool

// take gives n bytes, whatever they hold.
func take(n int) []byte {
	k := max(bits.Len(uint(max(n, 1)-1)), leastSpare)
	if k > mostSpare {
		return make([]byte, n)
	}
	if b, ok := spares[k].Get().(*byte); ok {
		return unsafe.Slice(b, 1<<k)[:n]
	}
	return make([]byte, n, 1<<k)
}

// leave gives memory of take back. Nothing may refer to it.
func leave(b []byte) {
	k := bits.Len(uint(cap(b))) - 1
	if k >= leastSpare && k <= mostSpare && cap(b) == 1<<k {
		spares[k].Put(unsafe.SliceData(b))
	}
}

// room gives n bytes, in the memory of b if there is enough. b is no longer used.
func room(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	leave(b)
	return take(n)
}

// takeOffsets and leaveOffsets are take and leave for n offsets.
func takeOffsets(n int) []int32 {
	b := take(4 * n)
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), cap(b)/4)[:n]
}

func leaveOffsets(o []int32) {
	leave(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(o))), 4*cap(o)))
}

// share makes a dictionary whose memory is left to others when nobody uses it.
func share(v values) *sources.Dictionary {
	d := &sources.Dictionary{Len: v.n, Values: v.data, Offsets: v.offsets}
	d.Share(func(d *sources.Dictionary) {
		leave(d.Values)
		leaveOffsets(d.Offsets)
		d.Values, d.Offsets = nil, nil
	})
	return d
}
