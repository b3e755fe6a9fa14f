package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

const (
	// Format is the version of the folder that this binary writes. It grows when
	// an older binary could misread what a newer one wrote.
	Format = 1

	formatKey = "f"
	ownerFile = "OWNER" // who holds the lock; for the error message only

	// Keys are few and overwritten all the time (one per partition and pass), so
	// a large memtable folds most writes before they reach a table.
	memTableBytes = 32 << 20
	cacheBytes    = 8 << 20
)

// Options of Open. The zero value is what a master uses.
type Options struct {
	FS     vfs.FS       // default: the operating system's
	Logger *slog.Logger // pebble's errors, and its chatter at debug level; default: nothing

	tune func(*pebble.Options) // for tests
}

// Open opens or creates the folder. Errors: *Locked, *Newer, *Error.
func Open(dir string, opts Options) (*Pebble, error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Pebble{
		dir:    dir,
		log:    opts.Logger.With("dir", dir),
		failed: make(chan struct{}),
		calls:  make(chan call),
	}
	go s.run()
	if err := s.do("open", func() error { return s.open(opts) }); err != nil {
		close(s.calls)
		return nil, err
	}
	return s, nil
}

// lockFile is the file that pebble locks in the folder.
const lockFile = "LOCK"

// InUse reports whether another process has the folder open. A process that has it open itself
// must not ask: the kernel takes the lock away when any file that names it is closed.
func InUse(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return true // not known
	}
	return lock.Type != unix.F_UNLCK
}

func (s *Pebble) open(opts Options) error {
	fs := opts.FS
	if err := fs.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(s.dir, fs)
	if err != nil {
		if held(err) {
			return &Locked{Dir: s.dir, Owner: readOwner(fs, s.dir)}
		}
		return fmt.Errorf("lock: %w", err)
	}
	if err := s.openLocked(opts, lock); err != nil {
		return errors.Join(err, lock.Close())
	}
	s.lock = lock
	return nil
}

func (s *Pebble) openLocked(opts Options, lock *pebble.Lock) error {
	if err := writeOwner(opts.FS, s.dir); err != nil {
		return fmt.Errorf("write %s: %w", ownerFile, err)
	}
	db, err := pebble.Open(s.dir, s.options(opts, lock))
	if err != nil {
		if v, ok := unknownPebbleFormat(err); ok {
			return &Newer{Dir: s.dir, Found: v, Know: int(pebble.FormatNewest), What: "pebble"}
		}
		return err
	}
	if err := checkFormat(db, s.dir); err != nil {
		return errors.Join(err, db.Close())
	}
	s.db, s.batch = db, db.NewBatch()
	return nil
}

func (s *Pebble) options(opts Options, lock *pebble.Lock) *pebble.Options {
	o := &pebble.Options{
		FS:                 door{opts.FS, s},
		Lock:               lock,
		Logger:             pebbleLog{s},
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		CacheSize:          cacheBytes,
		MemTableSize:       memTableBytes,
		// Two full memtables may wait for their flush before a commit does.
		MemTableStopWritesThreshold: 3,
		// Flushes, compactions, statistics. Pebble would try again for ever, with
		// commits piling up in memory behind it.
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { s.fail("background work", err) },
		},
	}
	if opts.tune != nil {
		opts.tune(o)
	}
	return o
}

// checkFormat writes our version into a new folder and refuses a newer one.
func checkFormat(db *pebble.DB, dir string) error {
	v, closer, err := db.Get([]byte(formatKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return db.Set([]byte(formatKey), []byte(strconv.Itoa(Format)), pebble.Sync)
	}
	if err != nil {
		return err
	}
	found, perr := strconv.Atoi(string(v))
	if err := closer.Close(); err != nil {
		return err
	}
	if perr != nil {
		return fmt.Errorf("format version is not a number: %w", perr)
	}
	if found > Format {
		return &Newer{Dir: dir, Found: found, Know: Format, What: "state"}
	}
	return nil
}

// unknownPebbleFormat recognises pebble's refusal by its text, because it has no type.
func unknownPebbleFormat(err error) (version int, ok bool) {
	_, tail, ok := strings.Cut(err.Error(), "written in unknown format major version ")
	if !ok {
		return 0, false
	}
	version, _ = strconv.Atoi(tail)
	return version, true
}

// held reports whether a lock failed because another process or this one has it. Pebble
// has no typed error for the latter.
func held(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) ||
		strings.Contains(err.Error(), "lock held by current process")
}

func writeOwner(fs vfs.FS, dir string) error {
	f, err := fs.Create(fs.PathJoin(dir, ownerFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	host, _ := os.Hostname() // empty is fine: it is for people
	_, err = fmt.Fprintf(f, "pid %d on host %s, since %s\n", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	return errors.Join(err, f.Close())
}

// readOwner may read while the owner is still writing. An empty answer is fine: it is for
// people.
func readOwner(fs vfs.FS, dir string) string {
	f, err := fs.Open(fs.PathJoin(dir, ownerFile))
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(f, 512))
	_ = f.Close()
	return strings.TrimSpace(string(b))
}
