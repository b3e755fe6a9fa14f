package frame

import (
	"encoding/binary"
	"fmt"
)

// Sizes of the payloads about shared memory.
const (
	RegionSize  = 8  // payload of REGION
	FrameAtSize = 24 // payload of FRAME_AT
	useSize     = 8
)

// Use is one use of a region for one frame. It tells a RELEASE that is late or repeated
// from the one of a newer frame.
type Use struct{ Region, Count uint32 }

// PutRegion is the payload of REGION: the bytes of the region.
func PutRegion(b *[RegionSize]byte, size int) { binary.LittleEndian.PutUint64(b[:], uint64(size)) }

// FrameAt is the payload of FRAME_AT: a frame that lies in a region.
type FrameAt struct {
	Use
	Offset, Length uint64
}

// Put writes the payload's bytes.
func (f *FrameAt) Put(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, f.Region)
	le.PutUint32(b[4:], f.Count)
	le.PutUint64(b[8:], f.Offset)
	le.PutUint64(b[16:FrameAtSize], f.Length)
}

// Uses parses the payload of RELEASE, or of a trainer's FORGET, into the memory of
// all. Errors wrap ErrProtocol.
func Uses(t Type, payload []byte, all []Use) ([]Use, error) {
	if len(payload)%useSize != 0 {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrProtocol, t, len(payload))
	}
	all = all[:0]
	for ; len(payload) > 0; payload = payload[useSize:] {
		all = append(all, Use{binary.LittleEndian.Uint32(payload), binary.LittleEndian.Uint32(payload[4:])})
	}
	return all, nil
}
