package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/minio/crc64nvme"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/shardsvc/cut"
)

// Errors of receiving a slot.
var (
	ErrNoRoom  = errors.New("there is no room in memory")
	ErrWrong   = errors.New("the bytes are not those of the slot")
	ErrPinned  = errors.New("the slot is in use")
	ErrAsNew   = errors.New("a replica that is as new is here")
	ErrNoShape = errors.New("it is no slot")
)

// Receiving is a slot that is being written from another node's bytes. Until Done it is not
// complete, and readers pass it over.
type Receiving struct {
	Path string

	head Head
	rank uint32
	cut  uint64
	file *os.File
	got  int64 // bytes of the image, then of the text
}

// receive begins to write the file at path, which is locked already.
func receive(path string, f *os.File, rank uint32, cutID uint64, h Head) (*Receiving, error) {
	r := &Receiving{Path: path, head: h, rank: rank, cut: cutID, file: f}
	begin := h.control()
	clear(begin[endAt : endAt+8]) // no end mark, and so the checksum is wrong, too
	_, err := f.WriteAt(begin, 0)
	if err == nil {
		err = r.room()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// room takes the memory before anything is written.
func (r *Receiving) room() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	need := r.head.size()
	if more := need - info.Size(); more > 0 {
		if free, known := affordable(); known && more > free {
			return fmt.Errorf("%w: %d bytes are needed, and %d are free", ErrNoRoom, more, free)
		}
	}
	switch err := room(r.file, need); {
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: %s needs %d bytes", ErrNoRoom, r.Path, need)
	case errors.Is(err, unix.EOPNOTSUPP):
		return r.file.Truncate(need)
	case err != nil:
		return err
	}
	return nil
}

// Write takes the next bytes: the image, then the text.
func (r *Receiving) Write(b []byte) (n int, err error) {
	if r.got+int64(len(b)) > int64(r.head.Image+r.head.Text) {
		return 0, fmt.Errorf("%w: more than %d bytes came", ErrWrong, r.head.Image+r.head.Text)
	}
	for len(b) > 0 {
		part, at := b, page+r.got
		if left := int64(r.head.Image) - r.got; left > 0 {
			part = b[:min(int64(len(b)), left)]
		} else {
			at = r.head.textAt() - left
		}
		k, err := r.file.WriteAt(part, at)
		n, r.got = n+k, r.got+int64(k)
		if err != nil {
			return n, err
		}
		b = b[len(part):]
	}
	return n, nil
}

// Done reads back what was written, compares it with what the head says, and makes the slot
// complete. Errors: ErrWrong.
func (r *Receiving) Done() error {
	if want := int64(r.head.Image + r.head.Text); r.got != want {
		return fmt.Errorf("%w: %d of %d bytes came", ErrWrong, r.got, want)
	}
	memory, err := unix.Mmap(int(r.file.Fd()), 0, int(r.head.size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", r.Path, err)
	}
	err = guarded(func() error { return r.check(memory) })
	if err := errors.Join(err, unix.Munmap(memory)); err != nil {
		return err
	}
	control := r.head.control()
	for _, part := range [][2]int{{endAt + 8, len(control)}, {endAt, endAt + 8}} { // the end mark last
		if _, err := r.file.WriteAt(control[part[0]:part[1]], int64(part[0])); err != nil {
			return err
		}
	}
	now := time.Now()
	return os.Chtimes(filepath.Dir(r.Path), now, now) // the folder is in use: its age decides when it is swept
}

func (r *Receiving) check(memory []byte) error {
	image := memory[page : page+r.head.Image]
	text := memory[r.head.textAt():r.head.size()]
	if got := crc64nvme.Checksum(image); got != r.head.ImageCRC {
		return fmt.Errorf("%w: the image has the checksum %016x, and %016x was written", ErrWrong, got, r.head.ImageCRC)
	}
	if got := crc64nvme.Checksum(text); got != r.head.TextCRC {
		return fmt.Errorf("%w: the text has the checksum %016x, and %016x was written", ErrWrong, got, r.head.TextCRC)
	}
	about, err := parseAbout(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if about.Rank != r.rank || uint64(about.Manifest.Cut.ID) != r.cut {
		return fmt.Errorf("%w: it is rank %d's of cut %v, and should be rank %d's of %v", ErrWrong, about.Rank, about.Manifest.Cut.ID, r.rank, cut.ID(r.cut))
	}
	if err := checkImage(image); err != nil {
		return fmt.Errorf("%w: the image: %w", ErrWrong, err)
	}
	return nil
}

// Close unlocks the slot. Without Done it stays incomplete.
func (r *Receiving) Close() error { return r.file.Close() }

// parseAbout reads what a slot says of its checkpoint.
func parseAbout(text []byte) (a About, err error) {
	a.Manifest.Cut.Rank = cut.Group
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("its description: %w", err)
	}
	if a.Version != version {
		return a, fmt.Errorf("it has version %d, and this Headrace knows %d: use the version that the trainer has", a.Version, version)
	}
	return a, nil
}
