package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/minio/crc64nvme"
)

// Fault is a file that is not what its manifest says.
type Fault struct {
	Path string
	Err  error
}

func (f *Fault) Error() string { return f.Path + ": " + f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// Progress of a Verify.
type Progress struct {
	Bytes, Of int64
	Files     int // done
}

// Verifying are the options of Verify.
type Verifying struct {
	Workers  int            // files read at a time; 0: one per processor, at most 8
	Progress func(Progress) // from many goroutines, about once per MiB and file
	Sizes    bool           // compare sizes only
	On       FS             // where the checkpoint lies; nil: OS
}

// Verify compares the files of a checkpoint with its manifest: each is there,
// lies in the folder (no link leads out of it), and has the size and the
// checksum. It returns the faults in the order of the manifest; an error is about
// the folder, or ctx's.
func Verify(ctx context.Context, folder string, m *Manifest, how Verifying) ([]Fault, error) {
	open, done, err := opener(how.On, folder)
	if err != nil {
		return nil, err
	}
	defer done()
	workers := how.Workers
	if workers <= 0 {
		workers = min(runtime.GOMAXPROCS(0), 8)
	}
	v := &verification{ctx: ctx, open: open, how: how, faults: make([]error, len(m.Files))}
	for i := range m.Files {
		v.of += m.Files[i].Size
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, max(len(m.Files), 1)) {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			for i := int(next.Add(1)) - 1; i < len(m.Files) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				v.faults[i] = v.file(&m.Files[i], buf)
				v.files.Add(1)
				v.progress(0)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var faults []Fault
	for i, err := range v.faults {
		if err != nil {
			faults = append(faults, Fault{m.Files[i].Path, err})
		}
	}
	return faults, nil
}

type verification struct {
	ctx    context.Context
	open   func(path string) (r io.ReadCloser, size int64, err error)
	how    Verifying
	faults []error
	of     int64
	bytes  atomic.Int64
	files  atomic.Int64
}

// opener opens files of a folder. No link leads out of it.
func opener(on FS, folder string) (open func(path string) (io.ReadCloser, int64, error), done func(), err error) {
	if bucket, is := on.(Bucket); is {
		return func(path string) (io.ReadCloser, int64, error) { return bucket.Open(Join(folder, path)) }, func() {}, nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, nil, err
	}
	return func(path string) (io.ReadCloser, int64, error) {
		f, err := regular(root.OpenFile(filepath.FromSlash(path), os.O_RDONLY|syscall.O_NONBLOCK, 0))
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}, func() { _ = root.Close() }, nil // it was only read
}

func (v *verification) progress(n int) {
	bytes := v.bytes.Add(int64(n))
	if v.how.Progress != nil {
		v.how.Progress(Progress{bytes, v.of, int(v.files.Load())})
	}
}

func (v *verification) file(want *File, buf []byte) error {
	f, size, err := v.open(want.Path)
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			return e.Err
		}
		return err
	}
	defer func() { _ = f.Close() }()
	if size != want.Size {
		return fmt.Errorf("it has %d bytes, its manifest says %d", size, want.Size)
	}
	if v.how.Sizes {
		return nil
	}
	sum := crc64nvme.New()
	for left := want.Size; left > 0; {
		n, err := f.Read(buf[:min(int64(len(buf)), left)])
		sum.Write(buf[:n])
		left -= int64(n)
		v.progress(n)
		if errors.Is(err, io.EOF) && left > 0 {
			return fmt.Errorf("it became shorter while it was read: %d bytes of %d", want.Size-left, want.Size)
		}
		if err != nil && left > 0 {
			return err
		}
		if err := v.ctx.Err(); err != nil {
			return err
		}
	}
	if got := CRC64(sum.Sum64()); got != want.CRC {
		return fmt.Errorf("its checksum is %v, its manifest says %v", got, want.CRC)
	}
	return nil
}
