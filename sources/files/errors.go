package files

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// retryAfter is how long an operating system's hiccup is left alone.
const retryAfter = time.Second

// Errors that go away by themselves: the machine is short of something, or a network file
// system is (passing), or its server does not answer (away).
var (
	passing = []error{
		syscall.EAGAIN, syscall.EINTR, syscall.EIO, syscall.ENOMEM, syscall.ENOBUFS,
		syscall.EMFILE, syscall.ENFILE, syscall.EBUSY, syscall.ESTALE, syscall.ECONNRESET,
	}
	away = []error{
		storage.ErrAway, syscall.ETIMEDOUT, syscall.ENOTCONN, syscall.ECONNREFUSED,
		syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
	}
)

// classify marks what is worth another try. A missing file is not: whoever knows
// what was asked says what that means.
func classify(err error) error {
	is := func(e error) bool { return errors.Is(err, e) }
	gone := slices.ContainsFunc(away, is)
	if gone || is(storage.ErrPassing) || slices.ContainsFunc(passing, is) {
		return &sources.Temporary{Err: err, Backoff: retryAfter, Away: gone}
	}
	return err
}

// escapes: os.Root has no sentinel for the refusal to leave it.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "escapes from parent")
}
