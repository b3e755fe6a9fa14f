package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// gunzip reads the members of a gzip file (RFC 1952), one after the other, and checks
// each member's CRC and length. A reading that begins at a restart point in the middle
// of a member checks them too: the point carries the CRC up to it.
type gunzip struct {
	in    *section
	notes notes
	flate io.ReadCloser // nil between members
	base  int64         // byte of the file that the deflate stream's offsets count from
	ahead int64         // how many bytes too far they are by now: see block
	out   int64         // of the content
	from  int64         // content offset of the member's start
	crc   uint32        // of the member up to out
	any   bool          // a member was read
	// passed has points in content that the decompressor has made and Read has not returned
	// yet.
	passed []*point
}

// pointsEvery is the least distance of two restart points, in bytes of content. A point
// takes up to 33 KiB on disk.
const pointsEvery = 4 << 20

func beginGzip(f io.ReaderAt, size int64, p point, n notes) (unpacker, error) {
	g := &gunzip{in: newSection(f, p.In, size), notes: n, any: p.In > 0, base: p.In, out: p.Out, from: p.Out}
	if !p.Inside {
		return g, nil
	}
	g.from, g.crc = p.Out-p.Member, p.CRC
	g.flate = flate.NewReaderOpts(g.in.buffered, flate.WithEobCallback(g.block),
		flate.WithResumeFrom(flate.InflateCheckpoint{UncompressedOffset: p.Member, BitOffset: p.Bit, Window: p.Window}))
	return g, nil
}

func (g *gunzip) Close() {}

func (g *gunzip) Read(p []byte) (int, error) {
	for {
		if g.flate == nil {
			if err := g.member(); err != nil {
				return 0, err
			}
		}
		n, err := g.flate.Read(p)
		g.gave(p[:n])
		if err == io.EOF {
			err = g.trailer()
			g.flate = nil
		} else if err != nil {
			err = g.in.damaged(gzipCodec, err)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// gave takes in what Read gives, and notes the points in it.
func (g *gunzip) gave(p []byte) {
	for len(g.passed) > 0 && g.passed[0].Out <= g.out+int64(len(p)) {
		at := g.passed[0]
		g.passed = g.passed[1:]
		k := at.Out - g.out
		g.crc, g.out, p = crc32.Update(g.crc, crc32.IEEETable, p[:k]), at.Out, p[k:]
		at.CRC = g.crc
		g.notes.note(at)
	}
	g.crc, g.out = crc32.Update(g.crc, crc32.IEEETable, p), g.out+int64(len(p))
}

// block is called by the decompressor at the end of each block. The decompressor (1.20.1 to
// 1.20.4) counts some bytes twice: those that it had fetched before the header of a stored
// block. So its offsets run ahead of the bytes that it has really read. After a stored block
// it holds no fetched bits, so its offset minus the bytes that it has read is exactly the
// error. After another block it may hold some, and the difference is the error or less. So
// the largest difference counts.
func (g *gunzip) block(c flate.InflateCheckpoint) {
	g.ahead = max(g.ahead, c.CompressedOffset-(g.in.place()-g.base))
	out := g.from + c.UncompressedOffset
	last := int64(-1)
	if n := len(g.passed); n > 0 {
		last = g.passed[n-1].Out
	}
	if c.Final || last >= 0 && out-last < g.notes.distance() || !g.notes.wanted(out) {
		return
	}
	g.passed = append(g.passed, &point{Out: out, In: g.base + c.CompressedOffset - g.ahead, Inside: true, Bit: c.BitOffset,
		Member: c.UncompressedOffset, Window: append([]byte(nil), c.Window...)})
}

// member skips the header of the next member. It returns io.EOF if there is none.
func (g *gunzip) member() error {
	if err := g.padding(); err != nil {
		return err
	}
	if g.notes.wanted(g.out) {
		g.notes.note(&point{Out: g.out, In: g.in.place()})
	}
	if err := g.header(); err != nil {
		if d := (*damage)(nil); errors.As(err, &d) {
			return err
		}
		return g.in.damaged(gzipCodec, err)
	}
	g.base, g.ahead, g.from, g.crc, g.any = g.in.place(), 0, g.out, 0, true
	g.flate = flate.NewReaderOpts(g.in.buffered, flate.WithEobCallback(g.block))
	return nil
}

// padding skips the zero bytes that some writers put after a member.
func (g *gunzip) padding() error {
	for {
		b, err := g.in.buffered.ReadByte()
		switch {
		case err == io.EOF:
			if g.in.failed != nil {
				return g.in.failed
			}
			if !g.any {
				return &damage{gzipCodec, 0, cutShort}
			}
			return io.EOF
		case err != nil:
			return g.in.damaged(gzipCodec, err)
		case b != 0 || !g.any:
			return g.in.buffered.UnreadByte()
		}
	}
}

const (
	gzipHasCRC     = 1 << 1
	gzipHasExtra   = 1 << 2
	gzipHasName    = 1 << 3
	gzipHasComment = 1 << 4
)

func (g *gunzip) header() error {
	var h [10]byte
	r := g.in.buffered
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	if h[0] != 0x1f || h[1] != 0x8b || h[2] != 8 {
		what := "it does not begin with a gzip header"
		if g.out > 0 {
			what = "what follows a member is no gzip header"
		}
		return &damage{gzipCodec, g.in.place() - 10, what}
	}
	if h[3]&gzipHasExtra != 0 {
		var n [2]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return err
		}
		if _, err := r.Discard(int(binary.LittleEndian.Uint16(n[:]))); err != nil {
			return err
		}
	}
	for _, flag := range []byte{gzipHasName, gzipHasComment} {
		for h[3]&flag != 0 {
			b, err := r.ReadByte()
			if err != nil {
				return err
			}
			if b == 0 {
				break
			}
		}
	}
	if h[3]&gzipHasCRC != 0 {
		_, err := r.Discard(2)
		return err
	}
	return nil
}

// trailer checks the member that was read.
func (g *gunzip) trailer() error {
	var t [8]byte
	if _, err := io.ReadFull(g.in.buffered, t[:]); err != nil {
		return g.in.damaged(gzipCodec, err)
	}
	if sum := binary.LittleEndian.Uint32(t[:4]); sum != g.crc {
		return &damage{gzipCodec, g.in.place(), fmt.Sprintf("the CRC of its content is %08x and should be %08x: the file is damaged", g.crc, sum)}
	}
	if n := binary.LittleEndian.Uint32(t[4:]); n != uint32(g.out-g.from) {
		return &damage{gzipCodec, g.in.place(), fmt.Sprintf("its content has %d bytes (mod 2^32) and should have %d: the file is damaged", uint32(g.out-g.from), n)}
	}
	return nil
}
