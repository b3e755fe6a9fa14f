package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/minio/crc64nvme"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/flashckpt/manifest"
)

const (
	page  = 4096
	magic = "HRSLOT01"
	// version of About.
	version = 1
	// The control page: magic, begin, end, image bytes, image checksum, about bytes, about
	// checksum, and the checksum of all that.
	controlSize = 8 + 6*8
)

// ErrIncomplete is why a slot holds no checkpoint: its writer was killed, or still writes.
var ErrIncomplete = errors.New("the slot is not complete: its writer was killed, or still writes")

// About is what a slot says of its checkpoint.
type About struct {
	Version int    `json:"version"`
	Path    string `json:"path"` // of the manifest, once it is on storage
	Rank    uint32 `json:"rank"`
	Node    string `json:"node"`
	// Shard: the state is the rank's own part of a sharded checkpoint.
	Shard bool `json:"shard,omitempty"`
	// Run names the `headrace run` that had started the trainer; empty: none had.
	Run string `json:"run"`
	// Manifest has no files yet.
	Manifest manifest.Manifest `json:"manifest"`
}

// Slot is a complete slot. It is pinned until Close.
type Slot struct {
	Path  string
	Bytes int64 // of the image
	CRC   manifest.CRC64
	About About

	head   Head
	file   *os.File
	memory []byte
}

// spoiled is the error of a slot whose bytes no writer leaves, or that another version wrote. It
// can be written anew, as an incomplete one can.
type spoiled struct{ error }

func (s *spoiled) Unwrap() error { return s.error }

// Open reads a slot and pins it. Errors wrap ErrIncomplete, or fs.ErrNotExist, or are *spoiled.
// Any other error says nothing of the slot.
func Open(path string) (*Slot, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	s := &Slot{Path: path, file: f}
	if err := s.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *Slot) read() (err error) {
	info, err := s.file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is no regular file")
	case info.Size() < page || info.Size() > 1<<46:
		return ErrIncomplete
	}
	if err := unix.Flock(int(s.file.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return ErrIncomplete
	} else if err != nil {
		return err
	}
	if s.memory, err = unix.Mmap(int(s.file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map it: %w", err)
	}
	if err := guarded(func() error { return s.parse(info.Size()) }); errors.Is(err, ErrIncomplete) {
		return err
	} else if err != nil {
		return &spoiled{err}
	}
	return nil
}

func (s *Slot) parse(size int64) error {
	h, err := parseControl(s.memory)
	if err != nil {
		return err
	}
	if h.Image > uint64(size) || h.Image > mostImage || h.Text > manifest.MaxBytes || h.size() > size {
		return fmt.Errorf("it says that it has %d and %d bytes, and has %d", h.Image, h.Text, size)
	}
	s.Bytes, s.CRC = int64(h.Image), manifest.CRC64(h.ImageCRC)
	text := s.memory[h.textAt():h.size()]
	if crc64nvme.Checksum(text) != h.TextCRC {
		return errors.New("the checksum of its description differs: its memory was changed")
	}
	s.head = h
	s.About, err = parseAbout(text)
	return err
}

// Head is what its control page says.
func (s *Slot) Head() Head { return s.head }

// Text is what it says of its checkpoint, as it lies there.
func (s *Slot) Text() (text []byte, err error) {
	err = guarded(func() error {
		text = bytes.Clone(s.memory[s.head.textAt():s.head.size()])
		return nil
	})
	return text, err
}

// ReadAt reads the image and then the text, as Receiving.Write takes them.
func (s *Slot) ReadAt(b []byte, at int64) (n int, err error) {
	err = guarded(func() error {
		if left := int64(s.head.Image) - at; left > 0 {
			n = copy(b[:min(int64(len(b)), left)], s.image()[at:])
			b = b[n:]
			at += int64(n)
		}
		if text := at - int64(s.head.Image); text >= 0 {
			n += copy(b, s.memory[s.head.textAt()+text:s.head.size()])
		}
		return nil
	})
	if err == nil && len(b) > 0 && n == 0 {
		err = io.EOF
	}
	return n, err
}

// Fault compares the image with its checksum. nil: it is as it was written.
func (s *Slot) Fault() error {
	return guarded(func() error {
		if got := crc64nvme.Checksum(s.image()); got != s.head.ImageCRC {
			return fmt.Errorf("%s: its %d bytes have the checksum %016x, and %016x was written: its memory was changed", s.Path, s.Bytes, got, s.head.ImageCRC)
		}
		return nil
	})
}

// image is the safetensors file that lies in the slot.
func (s *Slot) image() []byte { return s.memory[page : page+s.Bytes] }

// padded is the image up to the end of its last page.
func (s *Slot) padded() []byte { return s.memory[page : page+(s.Bytes+page-1)/page*page] }

// Owner is the user whose slot it is.
func (s *Slot) Owner() (uid uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Uid, nil
}

// Close unpins the slot.
func (s *Slot) Close() error {
	var err error
	if s.memory != nil {
		err = unix.Munmap(s.memory)
		s.memory = nil
	}
	return errors.Join(err, s.file.Close())
}

// guarded runs f, which reads mapped memory. If the file was cut off, that is an error
// and not the end of the process.
func guarded(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if r := recover(); r != nil {
			if fault, ok := r.(interface{ Addr() uintptr }); ok {
				err = fmt.Errorf("its memory cannot be read (at %#x): the file was cut off", fault.Addr())
				return
			}
			panic(r)
		}
	}()
	return f()
}
