package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"
)

// identity is what must be the same for a file to be the one that was planned.
type identity struct {
	Size     int64
	Modified int64 // ns
	Inode    uint64
	Print    uint64 // XXH64 of the first and the last 64 KiB
	// Tag is an object's ETag. With one, Modified and Inode are zero, and Print is of Tag.
	Tag string
}

const printed = 64 << 10

// stamp is what the file system says of an open file. Touched also moves when
// somebody sets Modified back.
type stamp struct {
	Device, Inode           uint64
	Size, Modified, Touched int64
	Tag                     string // of an object
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(int(f.Fd()), &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return stamp{}, fmt.Errorf("stat: %w", err)
		}
		return stamp{Device: uint64(st.Dev), Inode: st.Ino, Size: st.Size,
			Modified: st.Mtim.Nano(), Touched: st.Ctim.Nano()}, nil
	}
}

// fingerprint hashes the ends of a file of that size.
func fingerprint(f io.ReaderAt, size int64) (uint64, error) {
	buf := make([]byte, min(size, 2*printed))
	head := min(size, printed)
	if _, err := readFull(f, buf[:head], 0); err != nil {
		return 0, err
	}
	if tail := buf[head:]; len(tail) > 0 {
		if _, err := readFull(f, tail, size-int64(len(tail))); err != nil {
			return 0, err
		}
	}
	return xxhash.Sum64(buf), nil
}

// fullHash hashes all of a file of that size.
func fullHash(ctx context.Context, f io.ReaderAt, size int64) (uint64, error) {
	h, buf := xxhash.New(), make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := readFull(f, buf[:min(int64(len(buf)), size-at)], at)
		if err != nil {
			return 0, err
		}
		h.Write(buf[:n])
		at += int64(n)
	}
	return h.Sum64(), nil
}

// errShort: the file ended before all was read.
var errShort = errors.New("the file is shorter than it was")

// readFull is ReadAt that says errShort instead of io.EOF.
func readFull(f io.ReaderAt, b []byte, at int64) (int, error) {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		return n, errShort
	}
	return n, fmt.Errorf("read at offset %d: %w", at, err)
}

// differs says in words what has changed, or "".
func (want identity) differs(got stamp) string {
	switch {
	case want.Tag != "" && got.Tag != want.Tag:
		return fmt.Sprintf("another object in its place: ETag %s and %d bytes, was %s and %d bytes", got.Tag, got.Size, want.Tag, want.Size)
	case want.Tag != "":
		return "" // the ETag stands for size and content
	case got.Size != want.Size:
		return fmt.Sprintf("size %d, was %d", got.Size, want.Size)
	case got.Inode != want.Inode:
		return fmt.Sprintf("another file in its place: inode %d, was %d", got.Inode, want.Inode)
	case got.Modified != want.Modified:
		return fmt.Sprintf("modified %s, was %s", inWords(got.Modified), inWords(want.Modified))
	}
	return ""
}

func inWords(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
