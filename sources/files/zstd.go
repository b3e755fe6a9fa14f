package files

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// unzstd reads the frames of a zstd file (RFC 8878), one after the other. Each frame is a
// restart point; inside a frame there is none. Skippable frames, such as the table of the
// seekable format, are skipped.
type unzstd struct {
	f        io.ReaderAt
	notes    notes
	dec      *zstd.Decoder
	in       *section // of the current frame
	next     int64    // where the next frame begins
	end      int64    // of the file
	out      int64
	inFrame  bool
	anyFrame bool
}

// zstdWindow is the largest window that is accepted: zstd --long=27.
const zstdWindow = 128 << 20

func beginZstd(f io.ReaderAt, size int64, p point, n notes) (unpacker, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<62))
	if err != nil {
		return nil, err
	}
	return &unzstd{f: f, notes: n, dec: dec, next: p.In, end: size, out: p.Out, anyFrame: p.In > 0}, nil
}

func (z *unzstd) Close() { z.dec.Close() }

func (z *unzstd) Read(p []byte) (int, error) {
	for {
		if !z.inFrame {
			if err := z.frame(); err != nil {
				return 0, err
			}
		}
		n, err := z.dec.Read(p)
		z.out += int64(n)
		if err == io.EOF {
			z.inFrame, err = false, nil
		} else if err != nil {
			err = z.in.damaged(zstdCodec, err)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// frame begins the next frame, or returns io.EOF.
func (z *unzstd) frame() error {
	for z.next < z.end {
		fr, err := zstdFrameAt(z.f, z.next, z.end)
		if err != nil {
			return err
		}
		at := z.next
		z.next += fr.size
		if fr.skippable {
			continue
		}
		if z.notes.wanted(z.out) {
			z.notes.note(&point{Out: z.out, In: at})
		}
		z.in = newSection(z.f, at, z.next)
		if err := z.dec.Reset(z.in.buffered); err != nil {
			return z.in.damaged(zstdCodec, err)
		}
		z.inFrame, z.anyFrame = true, true
		return nil
	}
	if !z.anyFrame {
		return &damage{zstdCodec, 0, cutShort}
	}
	return io.EOF
}

type zstdFrame struct {
	size      int64 // bytes in the file
	content   int64 // bytes that it unpacks to; -1: it does not say
	skippable bool
}

// zstdFrameAt measures a frame by the headers of its blocks. It unpacks nothing.
func zstdFrameAt(f io.ReaderAt, at, end int64) (zstdFrame, error) {
	var buf [zstd.HeaderMaxSize]byte
	head := buf[:min(int64(len(buf)), end-at)]
	if _, err := readFull(f, head, at); err != nil {
		return zstdFrame{}, err
	}
	var h zstd.Header
	if err := h.Decode(head); err != nil {
		what := err.Error()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			what = cutShort
		case errors.Is(err, zstd.ErrMagicMismatch) && at == 0:
			what = "it does not begin with a zstd frame"
		case errors.Is(err, zstd.ErrMagicMismatch):
			what = "what follows a frame is no zstd frame"
		}
		return zstdFrame{}, &damage{zstdCodec, at, what}
	}
	if h.DictionaryID != 0 {
		return zstdFrame{}, &damage{zstdCodec, at, "it needs a dictionary, and dictionaries are not supported; compress it without one"}
	}
	fr := zstdFrame{size: int64(h.HeaderSize), content: -1, skippable: h.Skippable}
	if h.Skippable {
		fr.size += int64(h.SkippableSize)
		if at+fr.size > end {
			return fr, &damage{zstdCodec, at, cutShort}
		}
		return fr, nil
	}
	if h.HasFCS {
		fr.content = int64(h.FrameContentSize)
		if fr.content < 0 {
			return fr, &damage{zstdCodec, at, "its frame says that it unpacks to more than 2^63 bytes"}
		}
	}
	for last := false; !last; {
		var b [4]byte
		if at+fr.size+3 > end {
			return fr, &damage{zstdCodec, at + fr.size, cutShort}
		}
		if _, err := readFull(f, b[:3], at+fr.size); err != nil {
			return fr, err
		}
		block := binary.LittleEndian.Uint32(b[:])
		last = block&1 != 0
		fr.size += 3
		if block>>1&3 == 1 { // one byte, repeated
			fr.size++
		} else {
			fr.size += int64(block >> 3)
		}
	}
	if h.HasCheckSum {
		fr.size += 4
	}
	if at+fr.size > end {
		return fr, &damage{zstdCodec, at, cutShort}
	}
	return fr, nil
}

// zstdLength returns the length of the unpacked content, from the headers of the frames alone;
// known is false if a frame does not have it. Points are noted on the way.
func zstdLength(f io.ReaderAt, size int64, n notes) (length int64, known bool, err error) {
	any := false
	for at := int64(0); at < size; {
		fr, err := zstdFrameAt(f, at, size)
		if err != nil {
			return 0, false, err
		}
		if !fr.skippable {
			if fr.content < 0 {
				return 0, false, nil
			}
			if n.wanted(length) {
				n.note(&point{Out: length, In: at})
			}
			any = true
			if length += fr.content; length < 0 {
				return 0, false, &damage{zstdCodec, at, "its frames say that it unpacks to more than 2^63 bytes"}
			}
		}
		at += fr.size
	}
	if !any {
		return 0, false, &damage{zstdCodec, 0, cutShort}
	}
	return length, true, nil
}
