package deadletter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Folder holds letters as lines of DATASET.jsonl. Masters of several jobs may write one file.
type Folder struct {
	Root string // an allowed folder; made when it is not there
	Path string // below Root; made when it is not there
}

// FolderIn is the folder at dir, which must lie in one of the roots.
func FolderIn(roots []string, dir string) (Folder, error) {
	dir = filepath.Clean(dir)
	for _, root := range roots {
		rel, err := filepath.Rel(filepath.Clean(root), dir)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return Folder{Root: root, Path: rel}, nil
		}
	}
	return Folder{}, fmt.Errorf("dead_letter.files: %s is in none of the allowed roots (%s): start the master with --allow-root, or choose another folder", dir, strings.Join(roots, ", "))
}

const (
	suffix = ".jsonl"
	// maxLine bounds a line: a value of 64 KiB in base64, a key, and what names them.
	maxLine = 1 << 20
)

// Append writes lines to the file of a dataset. They are on disk when it returns. A line
// that a crash has left unfinished goes away first.
func (f Folder) Append(dataset string, lines [][]byte) (err error) {
	if err := os.MkdirAll(f.Root, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(f.Path, 0o700); err != nil {
		return err
	}
	name := filepath.Join(f.Path, dataset+suffix)
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := alone(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	end, err := whole(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := file.Seek(end, io.SeekStart); err != nil {
		return err
	}
	if _, err = file.Write(bytes.Join(lines, nil)); err == nil {
		err = file.Sync()
	}
	if err != nil {
		// The caller writes all lines again, so the ones that found room must not stay.
		return errors.Join(err, file.Truncate(end))
	}
	return f.sync(root)
}

// aloneWithin is how long a file may be written by another process. A process that is frozen would
// hold up all others.
var aloneWithin = 10 * time.Second

// alone waits until no other process writes the file, and keeps others out until the file is
// closed. Without that, the unfinished line of another process would be taken for a torn one. A
// file system without locks is used as it is.
func alone(file *os.File) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil
		}
		if time.Since(began) > aloneWithin {
			return fmt.Errorf("another process has been writing it for %v", aloneWithin)
		}
	}
}

// sync makes the names of new files and folders durable.
func (f Folder) sync(root *os.Root) error {
	for dir := f.Path; ; dir = filepath.Dir(dir) {
		d, err := root.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil || dir == "." {
			return err
		}
	}
}

// whole cuts an unfinished line off the end of a file, and says where the file ends then.
func whole(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	end := info.Size()
	tail := make([]byte, min(end, maxLine))
	if _, err := file.ReadAt(tail, end-int64(len(tail))); err != nil {
		return 0, err
	}
	i := bytes.LastIndexByte(tail, '\n')
	if i < 0 && end > int64(len(tail)) {
		return 0, fmt.Errorf("its end is not a line of dead letters: move the file away")
	}
	if keep := end - int64(len(tail)) + int64(i) + 1; keep < end {
		return keep, file.Truncate(keep)
	}
	return end, nil
}

// Read reads at most most lines of a dataset from byte `from` on. next is where to go on;
// 0: there is no more now. Each line has at most 1 MiB, and all together about 2 MiB.
func (f Folder) Read(dataset string, from int64, most int) (lines [][]byte, next int64, err error) {
	root, err := os.OpenRoot(f.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	defer func() { _ = root.Close() }()
	file, err := root.Open(filepath.Join(f.Path, dataset+suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, 0, err
	}
	in := bufio.NewReaderSize(file, maxLine)
	at := from
	for len(lines) < most && at-from < 2*maxLine {
		line, err := in.ReadSlice('\n')
		if err == io.EOF { // an unfinished line is not written yet
			return lines, 0, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: line at byte %d: %w", dataset+suffix, at, err)
		}
		at += int64(len(line))
		lines = append(lines, bytes.Clone(bytes.TrimRight(line, "\n")))
	}
	return lines, at, nil
}
