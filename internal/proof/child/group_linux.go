package child

import "syscall"

// ownGroup gives the process a group of its own, and makes the kernel end it when we die.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
