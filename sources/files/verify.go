package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/headrace/headrace/sources"
)

// verified remembers files whose content was compared, so that leases that
// follow each other in one file do not hash it again. The answer holds as long
// as the inode was not touched. Two changes in one clock tick leave the same
// stamp, so the content of a file counts only once the file has settled: its stamp
// is settledFor old by the wall clock, or was first seen that long ago by the
// monotonic one. The second is for a wall clock that was set back: by that clock a
// file stays young for hours, and each lease would hash all of it again.
type verified struct {
	mu    sync.Mutex
	files map[fileKey]*verdict
}

type fileKey struct{ device, inode uint64 }

type verdict struct {
	turn  chan struct{} // held while the file is hashed
	stamp stamp
	seen  time.Time // when stamp was seen first
	print uint64
	full  uint64
	// Which of the two was computed for stamp.
	hasPrint, hasFull bool
}

const (
	maxVerdicts = 1 << 16
	settledFor  = 2 * time.Second
)

func (v *verified) of(s stamp) *verdict {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := fileKey{s.Device, s.Inode}
	d := v.files[key]
	if d == nil {
		if v.files == nil || len(v.files) >= maxVerdicts {
			v.files = map[fileKey]*verdict{}
		}
		d = &verdict{turn: make(chan struct{}, 1)}
		v.files[key] = d
	}
	return d
}

// prints gives the fingerprint, and with full the hash of the whole file.
func (v *verified) prints(ctx context.Context, f file, s stamp, full bool) (print, all uint64, err error) {
	d := v.of(s)
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	if d.stamp != s {
		d.stamp, d.seen, d.hasPrint, d.hasFull = s, time.Now(), false, false
	}
	settled := time.Since(time.Unix(0, max(s.Touched, s.Modified))) > settledFor || time.Since(d.seen) > settledFor
	if !d.hasPrint {
		if d.print, err = fingerprint(f, s.Size); err != nil {
			return 0, 0, err
		}
		d.hasPrint = settled
	}
	if full && !d.hasFull {
		if d.full, err = fullHash(ctx, f, s.Size); err != nil {
			return 0, 0, err
		}
		d.hasFull = settled
	}
	return d.print, d.full, nil
}

// openPlanned opens the file of a locator and makes sure that it is the one
// that was planned.
func (s *Source) openPlanned(ctx context.Context, r sources.Range, l *locator) (file, error) {
	f, err := s.openFile(ctx, l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.goneError(r, l)
	}
	if err != nil {
		return nil, err
	}
	if err := s.compare(ctx, f, r, l); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *Source) goneError(r sources.Range, l *locator) error {
	return &sources.Truncated{Lost: r, Name: l.Path, Err: fmt.Errorf("the file is gone from %s: bring it back, or delete the dataset", s.spec.Root)}
}

func (s *Source) compare(ctx context.Context, f file, r sources.Range, l *locator) error {
	now, err := f.stamp()
	if err != nil {
		return s.fileError(l.Path, err)
	}
	what := l.Identity.differs(now)
	if what == "" && now.Tag == "" {
		print, full, err := s.verified.prints(ctx, f, now, l.HasFull)
		switch {
		case errors.Is(err, errShort):
			what = "it became shorter while it was opened"
		case err != nil:
			return s.fileError(l.Path, err)
		case print != l.Identity.Print:
			what = "other content in its first or last 64 KiB"
		case l.HasFull && full != l.Full:
			what = "other content"
		}
	}
	if what != "" {
		return &sources.Changed{Range: r, Name: l.Path, What: what}
	}
	return nil
}
