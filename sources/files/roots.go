package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// openRoot opens the folder of a spec through the allowed root it lies in, so
// that neither the folder nor anything opened below it can leave that root.
func openRoot(allowed []string, root string) (*os.Root, error) {
	if !filepath.IsAbs(root) {
		return nil, fmt.Errorf("root %q is relative; write an absolute path", root)
	}
	root = filepath.Clean(root)
	for _, a := range allowed {
		rel, ok := below(filepath.Clean(a), root)
		if !ok {
			continue
		}
		outer, err := os.OpenRoot(a)
		if err != nil {
			return nil, fmt.Errorf("allowed root %s: %w", a, err)
		}
		if rel == "." {
			return outer, nil
		}
		inner, err := outer.OpenRoot(rel)
		outer.Close()
		if escapes(err) {
			return nil, fmt.Errorf("root %s leads out of the allowed root %s by a symbolic link", root, a)
		}
		if err != nil {
			return nil, fmt.Errorf("root %s: %w", root, classify(err))
		}
		return inner, nil
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("root %s is refused: no roots are allowed on this host", root)
	}
	return nil, fmt.Errorf("root %s is refused: it is in none of the roots that this host allows, %s", root, strings.Join(allowed, ", "))
}

func below(outer, path string) (string, bool) {
	if outer == path {
		return ".", true
	}
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(outer, "/")+"/")
	return rest, ok && filepath.IsAbs(outer)
}

// openFile opens a regular file of the root for reading. It never waits for the
// other end of a pipe.
func (s *Source) openFile(ctx context.Context, name string) (file, error) {
	if s.bucket != nil {
		o, err := s.bucket.open(ctx, name)
		if err != nil {
			return nil, s.fileError(name, err)
		}
		return o, nil
	}
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, s.fileError(name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, s.fileError(name, err)
	}
	return localFile{f}, nil
}

func (s *Source) fileError(name string, err error) error {
	if escapes(err) {
		return fmt.Errorf("%s: %s leads out of root %s by a symbolic link (links must be relative and stay inside)", s.partition, name, s.spec.Root)
	}
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	if s.bucket != nil {
		if _, ok := errors.AsType[*placed](err); ok {
			return s.placeError(err)
		}
		return classify(fmt.Errorf("%s: %s/%s: %w", s.partition, s.spec.Root, name, err))
	}
	return classify(fmt.Errorf("%s: %s: %w", s.partition, filepath.Join(s.spec.Root, name), err))
}

// placed is an error of storage about one object. Its text names the object.
type placed struct{ error }

func (e *placed) Unwrap() error { return e.error }

// placeError names the dataset in an error that names its file, or is not about one file.
func (s *Source) placeError(err error) error {
	if err == nil {
		return nil
	}
	return classify(fmt.Errorf("%s: %w", s.partition, err))
}

func notRegular(mode fs.FileMode) error {
	what := "neither a file nor a folder"
	switch {
	case mode.IsDir():
		what = "a folder, not a file"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe, not a file"
	case mode&fs.ModeSocket != 0:
		what = "a socket, not a file"
	case mode&fs.ModeDevice != 0:
		what = "a device, not a file"
	}
	return fmt.Errorf("is %s; leave it out of files.paths", what)
}
