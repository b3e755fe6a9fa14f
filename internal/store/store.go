package store

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/headrace/headrace/shardsvc"
)

// Store keeps keys and values. Calls are made by one goroutine at a time.
type Store interface {
	// Load calls each for every key in order; key and value are valid during the
	// call only. It is meant to be called once, before the first Commit.
	Load(each func(key, value []byte) error) error

	// Commit makes the batch durable, all of it or nothing, and returns after it
	// was synced. It keeps no reference to puts. After an error the process must
	// end: whether the batch is durable is not known until the next Open, and
	// every later call returns the same error.
	Commit(puts []shardsvc.Put) error

	// Close releases the folder. It does not make anything more durable.
	Close() error
}

// Error says what failed in which folder, and what to do about it.
type Error struct {
	Dir  string
	What string // "commit", "open", ...
	Err  error
}

func (e *Error) Error() string {
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		return fmt.Sprintf("state folder %s: disk full during %s (%v): free some space on that file system, then start the master again; everything that was answered is safe", e.Dir, e.What, e.Err)
	}
	return fmt.Sprintf("state folder %s: %s: %v", e.Dir, e.What, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Locked means that another master has the folder open.
type Locked struct {
	Dir   string
	Owner string // "pid 4711 on host a, since ..."; empty if it could not be known
}

func (e *Locked) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = "its process id is not known"
	}
	return fmt.Sprintf("state folder %s: another master runs on it (%s): stop that one, or give this one a folder of its own", e.Dir, owner)
}

// Newer means that a newer version of Headrace has written the folder.
type Newer struct {
	Dir         string
	Found, Know int
	What        string // whose version: "state" or "pebble"
}

func (e *Newer) Error() string {
	return fmt.Sprintf("state folder %s: written by a newer headrace (%s format %d, this binary knows up to %d): start the newer binary, or use another folder", e.Dir, e.What, e.Found, e.Know)
}

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("store is closed")
