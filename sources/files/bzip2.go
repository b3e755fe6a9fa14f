package files

import (
	"compress/bzip2"
	"fmt"
	"io"
	"math/bits"
)

// bunzip reads the streams of a bzip2 file, one after the other. Blocks are independent, begin
// at any bit, and do not say how long they are. The standard library decodes them and does not
// tell where they begin. But it reads byte by byte: when it returns the first content of a
// block, the last byte that it has read is the one in which the block ends. So the mark of the
// next block, or of the stream's end, begins at one of eight bits. Only one of these can fit,
// because no mark looks like itself or the other mark when it is shifted by less than eight
// bits. bunzip never looks at the middle of a block, where a mark may stand by chance.
//
// If reading begins at a block, the library gets a stream header that is made up. It checks the
// CRC of each block as usual, but cannot check the CRC of the whole stream, because it has not
// seen the blocks before. So bunzip checks that one: the restart point carries the CRC of the
// stream up to it. The library gets the CRC that it expects.
type bunzip struct {
	in    *section
	notes notes
	r     io.Reader // decodes the bytes of ReadByte
	out   int64     // of the content

	pending []byte  // what ReadByte gives first
	last    [2]byte // the bytes of the file that were read last
	shift   uint    // the bits of last[1] that were given already; 0: all of them
	given   int64   // bytes that ReadByte gave
	ended   bool    // no stream follows
	wrong   error   // what is wrong after the block that is read

	level      byte   // of the stream
	block      int64  // bit of the file where the block that is read next begins
	sum, local uint32 // CRCs of the stream's blocks before that one: of all, and of those read here
	want       uint32 // CRC of that block
	first      bool   // no stream was read yet
}

const (
	blockMark  = 0x314159265359
	streamMark = 0x177245385090 // of a stream's end
	markBits   = 48
)

// beginBzip2 begins at the first stream, or at a block.
func beginBzip2(f io.ReaderAt, size int64, p point, n notes) (unpacker, error) {
	b := &bunzip{in: newSection(f, p.In, size), notes: n, out: p.Out, first: p.In == 0}
	b.r = bzip2.NewReader(b)
	if !p.Inside {
		b.wrong = b.nextStream()
		return b, nil
	}
	if len(p.Window) != 1 {
		return nil, errPoint
	}
	b.pending = append(b.pending, 'B', 'Z', 'h', p.Window[0])
	b.level, b.sum = p.Window[0], p.CRC
	if p.Bit > 0 {
		if _, err := b.fileByte(); err != nil {
			return nil, b.in.damaged(bzip2Codec, err)
		}
		b.shift = uint(p.Bit)
	}
	b.wrong = b.afterBlock(0)
	return b, nil
}

func (b *bunzip) Close() {}

func (b *bunzip) Read(p []byte) (int, error) {
	if b.ended && b.given == 0 {
		return 0, io.EOF // there are only empty streams
	}
	if b.wrong != nil && b.given == 0 {
		return 0, b.wrong
	}
	was := b.given
	n, err := b.r.Read(p)
	switch {
	case n > 0 && b.given > was && err == nil: // a block was read
		if b.notes.wanted(b.out) {
			b.notes.note(b.point())
		}
		b.sum, b.local = addBlock(b.sum, b.want), addBlock(b.local, b.want)
		b.wrong = b.afterBlock(8)
	case err == nil, err == io.EOF && b.ended:
	case b.in.failed != nil:
		err = b.in.failed
	case b.wrong != nil && err.Error() != blockDamaged:
		err = b.wrong
	default:
		err = b.in.damaged(bzip2Codec, err)
	}
	b.out += int64(n)
	return n, err
}

// blockDamaged is what the library says of a block whose CRC is wrong. It says so before it
// reads what follows the block.
var blockDamaged = bzip2.StructuralError("block checksum mismatch").Error()

// point is the place of the block that was read last.
func (b *bunzip) point() *point {
	return &point{Out: b.out, In: b.block / 8, Inside: true, Bit: uint8(b.block % 8), CRC: b.sum, Window: []byte{b.level}}
}

// addBlock is the CRC of a stream with one block more.
func addBlock(sum, block uint32) uint32 { return bits.RotateLeft32(sum, 1) ^ block }

// ReadByte gives the library the next byte of the stream, wherever it begins in the file's
// bytes.
func (b *bunzip) ReadByte() (byte, error) {
	if len(b.pending) > 0 {
		c := b.pending[0]
		b.pending = b.pending[1:]
		b.given++
		return c, nil
	}
	if b.wrong != nil || b.ended {
		return 0, io.EOF
	}
	c := b.last[1]
	next, err := b.fileByte()
	if err == io.EOF && b.shift > 0 { // the last bits
		c, b.shift = c<<b.shift, 0
		b.given++
		return c, nil
	}
	if err != nil {
		return 0, err
	}
	if b.given++; b.shift == 0 {
		return next, nil
	}
	return c<<b.shift | next>>(8-b.shift), nil
}

func (b *bunzip) fileByte() (byte, error) {
	c, err := b.in.buffered.ReadByte()
	if err == nil {
		b.last[0], b.last[1] = b.last[1], c
	}
	return c, err
}

// near has the last two bytes that were read and some that follow.
type near struct {
	bytes []byte
	from  int64 // the bit of the file that it begins with
}

// bits returns count bits of the file from bit at on; false: the file ends before. If count is
// over 64, v has only the last 64.
func (n *near) bits(at int64, count uint) (v uint64, ok bool) {
	at -= n.from
	if at+int64(count) > 8*int64(len(n.bytes)) {
		return 0, false
	}
	for range count {
		v = v<<1 | uint64(n.bytes[at/8]>>(7-at%8)&1)
		at++
	}
	return v, true
}

// nearBytes hold what follows a block: a mark, a CRC and up to seven bits.
const nearBytes = 16

func (b *bunzip) near() near {
	more, _ := b.in.buffered.Peek(nearBytes) // less at the end of the file
	return near{append(b.last[:2:2], more...), 8 * (b.in.place() - 2)}
}

// afterBlock reads the mark that follows a block. The mark begins after all bits that were
// given, or less than within bits before that.
func (b *bunzip) afterBlock(within int64) error {
	n := b.near()
	given := 8 * b.in.place()
	if b.shift > 0 {
		given -= 8 - int64(b.shift)
	}
	for at := given; at > given-max(within, 1); at-- {
		mark, whole := n.bits(at, markBits)
		if !whole || mark != blockMark && mark != streamMark {
			continue
		}
		sum, whole := n.bits(at+markBits, 32)
		if !whole {
			break
		}
		if mark == blockMark {
			b.block, b.want = at, uint32(sum)
			return nil
		}
		if within == 0 {
			break // a point is where a block begins
		}
		return b.endStream(given-at, at+markBits+32, uint32(sum))
	}
	if b.in.failed != nil {
		return b.in.failed
	}
	if _, whole := n.bits(given, markBits+32); !whole {
		return &damage{bzip2Codec, b.in.place(), cutShort}
	}
	return &damage{bzip2Codec, b.in.place(), "what follows a block is neither a block nor the end of a stream"}
}

// endStream checks the CRC of a stream that ends at a bit of the file. The library has some
// bits of the mark of the end already. It gets the rest, and the CRC that it expects.
func (b *bunzip) endStream(given, end int64, sum uint32) error {
	if sum != b.sum {
		return &damage{bzip2Codec, end / 8, fmt.Sprintf("the CRC of a stream is %08x and should be %08x: the file is damaged", b.sum, sum)}
	}
	for at := given; at < markBits+32; at += 8 { // bits of the mark and the CRC
		var c byte
		for k := range int64(8) {
			c <<= 1
			switch bit := at + k; {
			case bit < markBits:
				c |= byte(uint64(streamMark) >> (markBits - 1 - bit) & 1)
			case bit < markBits+32:
				c |= byte(b.local >> (markBits + 31 - bit) & 1)
			}
		}
		b.pending = append(b.pending, c)
	}
	if err := b.pass((end+7)/8 - b.in.place()); err != nil {
		return err
	}
	return b.nextStream()
}

// pass skips n bytes of the file. The library does not get them.
func (b *bunzip) pass(n int64) error {
	for range n {
		if _, err := b.fileByte(); err != nil {
			return b.in.damaged(bzip2Codec, err)
		}
	}
	b.shift = 0
	return nil
}

const (
	streamHeader = 4
	emptyStream  = streamHeader + markBits/8 + 4
)

// nextStream skips the header of the next stream that has a block.
func (b *bunzip) nextStream() error {
	for {
		head, err := b.in.buffered.Peek(emptyStream)
		switch {
		case b.in.failed != nil:
			return b.in.failed
		case len(head) == 0 && !b.first:
			b.ended = true
			return nil
		case len(head) >= 3 && string(head[:3]) != "BZh", len(head) >= streamHeader && (head[3] < '1' || head[3] > '9'):
			what := "it does not begin with a bzip2 header"
			if !b.first {
				what = "what follows a stream is no bzip2 header"
			}
			return &damage{bzip2Codec, b.in.place(), what}
		case err != nil:
			return b.in.damaged(bzip2Codec, err)
		}
		n := near{head, 0}
		mark, _ := n.bits(8*streamHeader, markBits)
		sum, _ := n.bits(8*streamHeader+markBits, 32)
		switch {
		case mark == blockMark:
			b.pending = append(b.pending, head[:streamHeader]...)
			b.level, b.sum, b.local, b.want, b.first = head[3], 0, 0, uint32(sum), false
			b.block = 8 * (b.in.place() + streamHeader)
			return b.pass(streamHeader)
		case mark != streamMark || sum != 0:
			return &damage{bzip2Codec, b.in.place(), "what follows the header of a stream is neither a block nor its end"}
		}
		b.first = false
		if err := b.pass(emptyStream); err != nil {
			return err
		}
	}
}

var _ io.ByteReader = (*bunzip)(nil)
