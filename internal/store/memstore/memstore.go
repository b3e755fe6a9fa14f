// Package memstore is a store.Store in memory, for tests. What was committed
// survives Reopen, as if the process had been killed and started again; Before
// and After stand at both sides of every commit, so that a test can block it,
// fail it, or crash with the batch lost or kept.
package memstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headrace/headrace/internal/store"
	"github.com/headrace/headrace/shardsvc"
)

// ErrCrash is what a test's hook may return to stop a store.
var ErrCrash = errors.New("memstore: crashed here")

// Store is the zero value ready for use. Set the hooks before the first call.
type Store struct {
	// Before is called with the number of the commit (from 1) before it takes
	// effect; After when it has. An error stops the store: the commit and every
	// later call return it.
	Before func(n int, puts []shardsvc.Put) error
	After  func(n int) error

	mu      sync.Mutex
	keys    map[string][]byte
	commits int
	failed  error
	closed  bool
}

// New returns an empty store.
func New() *Store { return &Store{} }

// Reopen returns what a new process finds: the durable keys and no hooks. The
// old store is stopped.
func (s *Store) Reopen() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = ErrCrash
	}
	n := &Store{keys: make(map[string][]byte, len(s.keys))}
	for k, v := range s.keys {
		n.keys[k] = v
	}
	return n
}

// Commits says how many commits took effect.
func (s *Store) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

func (s *Store) Load(each func(key, value []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state(); err != nil {
		return err
	}
	names := make([]string, 0, len(s.keys))
	for k := range s.keys {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		if err := each([]byte(k), bytes.Clone(s.keys[k])); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) Commit(puts []shardsvc.Put) error {
	s.mu.Lock()
	err, n := s.state(), s.commits+1
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if s.Before != nil {
		if err := s.Before(n, puts); err != nil {
			return s.stop(err)
		}
	}
	if err := s.apply(puts); err != nil {
		return s.stop(err)
	}
	if s.After != nil {
		if err := s.After(n); err != nil {
			return s.stop(err)
		}
	}
	return nil
}

func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.failed
}

func (s *Store) apply(puts []shardsvc.Put) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state(); err != nil { // Reopen came while Before ran
		return err
	}
	if s.keys == nil {
		s.keys = make(map[string][]byte)
	}
	for _, p := range puts {
		switch p.Op {
		case shardsvc.Set:
			s.keys[string(p.Key)] = bytes.Clone(p.Value)
		case shardsvc.Delete:
			delete(s.keys, string(p.Key))
		case shardsvc.DeleteRange:
			for k := range s.keys {
				if k >= string(p.Key) && k < string(p.Value) {
					delete(s.keys, k)
				}
			}
		default:
			return fmt.Errorf("memstore: unknown op %d", p.Op)
		}
	}
	s.commits++
	return nil
}

func (s *Store) state() error {
	if s.failed != nil {
		return s.failed
	}
	if s.closed {
		return store.ErrClosed
	}
	return nil
}

func (s *Store) stop(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	return s.failed
}
