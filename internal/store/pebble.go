package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/headrace/headrace/shardsvc"
)

// Pebble is a Store in a folder.
//
// Only the goroutine run calls pebble. Callers wait for run or for the first failure,
// whichever comes first. So a failure of pebble's background work is the error of the
// next Commit. Pebble itself would call Logger.Fatalf, or stay silent and retry.
type Pebble struct {
	dir   string
	log   *slog.Logger
	db    *pebble.DB
	batch *pebble.Batch
	lock  *pebble.Lock

	sorted []shardsvc.Put // scratch of Commit

	calls  chan call
	closed bool // caller's side

	once    sync.Once
	failure error         // set before failed is closed
	failed  chan struct{} // closed at the first failure
}

type call struct {
	f    func() error
	done chan error
}

func (s *Pebble) run() {
	for c := range s.calls {
		c.done <- protect(c.f)
	}
}

// protect turns a panic of pebble (a failed write of a large batch is one) into
// the error it carries.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); ok {
				err = e
			} else {
				err = fmt.Errorf("%v", r)
			}
		}
	}()
	return f()
}

// do runs f on the run goroutine. Any error is final.
func (s *Pebble) do(what string, f func() error) error {
	select {
	case <-s.failed:
		return s.failure
	default:
	}
	c := call{f: f, done: make(chan error, 1)}
	s.calls <- c // run is idle: calls come one at a time and end before the next
	select {
	case err := <-c.done:
		if err != nil {
			s.fail(what, err)
			return s.failure
		}
	case <-s.failed:
		return s.failure
	}
	// A commit that was answered while background work failed is durable.
	return nil
}

func (s *Pebble) fail(what string, err error) {
	s.once.Do(func() {
		switch {
		case isOwn(err):
			s.failure = err
		default:
			s.failure = &Error{Dir: s.dir, What: what, Err: err}
		}
		s.log.Error("store failed", "what", what, "err", err)
		close(s.failed)
	})
}

// isOwn reports errors that need no context around them.
func isOwn(err error) bool {
	var l *Locked
	var n *Newer
	return errors.As(err, &l) || errors.As(err, &n)
}

func (s *Pebble) Load(each func(key, value []byte) error) error {
	if s.closed {
		return ErrClosed
	}
	return s.do("load", func() error {
		it, err := s.db.NewIter(nil)
		if err != nil {
			return err
		}
		for it.First(); it.Valid(); it.Next() {
			if string(it.Key()) == formatKey {
				continue
			}
			if err := each(it.Key(), it.Value()); err != nil {
				return errors.Join(err, it.Close())
			}
		}
		return errors.Join(it.Error(), it.Close())
	})
}

func (s *Pebble) Commit(puts []shardsvc.Put) error {
	if s.closed {
		return ErrClosed
	}
	return s.do("commit", func() error {
		b := s.batch
		b.Reset()
		puts = s.inKeyOrder(puts)
		for i := range puts {
			p := &puts[i]
			var err error
			switch p.Op {
			case shardsvc.Set:
				err = b.Set(p.Key, p.Value, nil)
			case shardsvc.Delete:
				err = b.Delete(p.Key, nil)
			case shardsvc.DeleteRange:
				err = b.DeleteRange(p.Key, p.Value, nil)
			default:
				err = fmt.Errorf("put %d: unknown op %d", i, p.Op)
			}
			if err != nil {
				return err
			}
		}
		return b.Commit(pebble.Sync)
	})
}

// inKeyOrder sorts a batch by key, which pebble's memtable takes several times
// faster. It keeps the order of equal keys, and leaves a batch with ranges as
// it is.
func (s *Pebble) inKeyOrder(puts []shardsvc.Put) []shardsvc.Put {
	if slices.ContainsFunc(puts, func(p shardsvc.Put) bool { return p.Op == shardsvc.DeleteRange }) {
		return puts
	}
	s.sorted = append(s.sorted[:0], puts...)
	slices.SortStableFunc(s.sorted, func(a, b shardsvc.Put) int { return bytes.Compare(a.Key, b.Key) })
	return s.sorted
}

// Close releases the folder. After a failure it leaves everything as it is: the
// process must end, and the less it does the less it spoils.
func (s *Pebble) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	defer close(s.calls)
	select {
	case <-s.failed:
		return s.failure
	default:
	}
	return s.do("close", func() error {
		return errors.Join(s.batch.Close(), s.db.Close(), s.lock.Close())
	})
}

// pebbleLog carries pebble's own messages to ours.
type pebbleLog struct{ s *Pebble }

func (l pebbleLog) Infof(format string, args ...any) {
	if l.s.log.Enabled(context.Background(), slog.LevelDebug) {
		l.s.log.Debug(fmt.Sprintf("pebble: "+format, args...))
	}
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.s.log.Warn(fmt.Sprintf("pebble: "+format, args...))
}

// Fatalf must not return: pebble would go on with a store that it knows to be
// broken. It must not exit either: the caller that waits in Commit gets the error
// first, and then ends the process.
func (l pebbleLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...) // text only: pebble formats with %v
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err = cause
		}
	}
	l.s.fail("write", err)
	select {}
}
