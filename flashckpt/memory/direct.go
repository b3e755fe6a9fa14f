package memory

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/minio/crc64nvme"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/flashckpt/manifest"
)

const (
	// Images of directFrom bytes or more are written past the page cache. A checkpoint is not
	// read again soon, and would push out pages that are.
	directFrom = 8 << 20
	// stride is the bytes of one write, and writers is how many writes go on at a time.
	stride  = 8 << 20
	writers = 2
)

// Direct is this machine's file system. Large images are written to it past the page
// cache, by some writers at a time, where the file system can do that. The writers' threads
// give way to the trainer's.
type Direct struct{ manifest.OS }

// image writes b as a file, syncs it, and gives the checksum of what was written. ok is
// false if the file system cannot do that: nothing was written then.
func (Direct) image(path string, b []byte, padded []byte, ended func() error) (crc manifest.CRC64, ok bool, err error) {
	if len(b) < directFrom {
		return 0, false, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|past, 0o666)
	if errors.Is(err, unix.EINVAL) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := room(f, int64(len(padded))); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return 0, true, &os.PathError{Op: "fallocate", Path: path, Err: err}
	}
	var (
		wg    sync.WaitGroup
		first = make([]error, writers+1)
	)
	for w := range writers {
		wg.Go(func() {
			behind()
			first[w] = guarded(func() error {
				for at := w * stride; at < len(padded); at += writers * stride {
					if err := ended(); err != nil {
						return err
					}
					if _, err := f.WriteAt(padded[at:min(at+stride, len(padded))], int64(at)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	wg.Go(func() {
		behind()
		first[writers] = guarded(func() error {
			crc = manifest.CRC64(crc64nvme.Checksum(b))
			return nil
		})
	})
	wg.Wait()
	for _, err := range first {
		if errors.Is(err, unix.EINVAL) { // the file system opens such a file, and does not write it
			return 0, false, nil
		}
	}
	if err := errors.Join(first...); err != nil {
		return 0, true, err
	}
	if err := f.Truncate(int64(len(b))); err != nil {
		return 0, true, err
	}
	if err := f.Sync(); err != nil {
		return 0, true, fmt.Errorf("%s: %w", path, err)
	}
	return crc, true, nil
}
