package parquet

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/headrace/headrace/sources"
)

// A Reader reads one row group. Its columns need some MiB, for bytes read ahead and for pages.
// The kernel clears new memory before it gives it out, and that takes longer than reading into
// it. So a Reader that ends leaves its buffers to the next ones.

// Buffers have 2^n bytes, from 2^leastSpare to 2^mostSpare. Larger ones are not kept.
const (
	leastSpare = 12
	mostSpare  = 22
)

// spares[n] has the unused buffers of 2^n bytes, as pointers to their first byte. The garbage
// collector frees buffers that stay unused.
var spares [mostSpare + 1]sync.Pool

// take returns n bytes. They are not cleared.
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

// leave gives back memory that take returned. The caller must not use it any more.
func leave(b []byte) {
	k := bits.Len(uint(cap(b))) - 1
	if k >= leastSpare && k <= mostSpare && cap(b) == 1<<k {
		spares[k].Put(unsafe.SliceData(b))
	}
}

// room returns n bytes, in the memory of b if it is large enough. The caller must not use b
// any more.
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

// share makes a dictionary of v. When its last user releases it, its memory is left to others.
func share(v values) *sources.Dictionary {
	d := &sources.Dictionary{Len: v.n, Values: v.data, Offsets: v.offsets}
	d.Share(func(d *sources.Dictionary) {
		leave(d.Values)
		leaveOffsets(d.Offsets)
		d.Values, d.Offsets = nil, nil
	})
	return d
}
