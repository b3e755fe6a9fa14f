package manifest

import (
	"errors"
	"io/fs"
	"syscall"
)

// makeFolders makes a folder and what is missing above it, and says how many it made.
func makeFolders(on FS, folder string) (made int, err error) {
	err = on.Mkdir(folder)
	if above := Dir(folder); errors.Is(err, fs.ErrNotExist) && above != folder {
		if made, err = makeFolders(on, above); err == nil {
			err = on.Mkdir(folder)
		}
	}
	switch {
	case err == nil:
		return made + 1, nil
	case errors.Is(err, fs.ErrExist): // or another process was faster
		return made, nil
	}
	return made, err
}

// syncAbove makes all folders above folder durable, up to the root. Another rank, or a
// process that was killed, may have made them without a sync. The nearest `must` folders
// must sync. Further up we may lack the right, or the file system may not sync folders;
// those stay as durable as they were.
func syncAbove(on FS, folder string, must int) error {
	for n := 1; ; n++ {
		above := Dir(folder)
		if above == folder {
			return nil
		}
		if err := on.SyncDir(above); err != nil && (n <= must || !notOurs(err)) {
			return err
		}
		folder = above
	}
}

func notOurs(err error) bool {
	for _, is := range []error{fs.ErrPermission, syscall.EINVAL, syscall.ENOTSUP, syscall.EROFS} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
