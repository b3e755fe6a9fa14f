package files

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// retryAfter is how long an operating system's hiccup is left alone.
const retryAfter = time.Second

// passing are the errors that go away by themselves: the machine is short of
// something, or a network file system is.
var passing = []error{
	syscall.EAGAIN, syscall.EINTR, syscall.EIO, syscall.ENOMEM, syscall.ENOBUFS,
	syscall.EMFILE, syscall.ENFILE, syscall.EBUSY, syscall.ETIMEDOUT,
	syscall.ESTALE, syscall.ENOTCONN, syscall.ECONNRESET, syscall.ECONNREFUSED,
	syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
}

// classify marks what is worth another try. A missing file is not: whoever knows
// what was asked says what that means.
func classify(err error) error {
	if errors.Is(err, storage.ErrPassing) {
		return &sources.Temporary{Err: err, Backoff: retryAfter}
	}
	for _, e := range passing {
		if errors.Is(err, e) {
			return &sources.Temporary{Err: err, Backoff: retryAfter}
		}
	}
	return err
}

// escapes: os.Root has no sentinel for the refusal to leave it.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "escapes from parent")
}
