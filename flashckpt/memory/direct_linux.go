package memory

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// past opens a file that is written past the page cache.
const past = unix.O_DIRECT

// room allocates a file on the disk before it is written, so that a full disk is an error now.
// Any signal may end the call (fallocate(2)), such as those with which Go preempts a goroutine.
func room(f *os.File, size int64) error {
	for {
		if err := fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

var fallocate = unix.Fallocate // a test replaces it

// niceness of the threads that write a checkpoint: beside a trainer that uses all cores they
// get a small share of them.
const niceness = 15

// behind makes the calling goroutine's thread give way to all others. The thread ends with
// the goroutine, so call it only in a goroutine of its own.
func behind() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceness) // else it is as important as others
}
