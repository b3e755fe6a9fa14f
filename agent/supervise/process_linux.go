package supervise

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const runsHere = true

// ownGroup gives a process a group of its own, so that its children end with it. The kernel
// ends the process if we are killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd returns when a process has ended, and leaves it to be reaped: until then, no other
// process or group can get its number.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
