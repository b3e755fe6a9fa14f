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

// retryAfter is how long a reader waits before it tries again.
const retryAfter = time.Second

// Errors that go away by themselves. passing: the machine or a network file system is short of
// something. away: the server of the files does not answer.
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

// classify makes an error Temporary if another try may succeed. A missing file stays as it is:
// the caller knows what it means.
func classify(err error) error {
	is := func(e error) bool { return errors.Is(err, e) }
	gone := slices.ContainsFunc(away, is)
	if gone || is(storage.ErrPassing) || slices.ContainsFunc(passing, is) {
		return &sources.Temporary{Err: err, Backoff: retryAfter, Away: gone}
	}
	return err
}

// escapes reports whether os.Root refused to leave its folder. There is no sentinel for that.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "escapes from parent")
}
