package child

import "syscall"

// ownGroup: the process has a group of its own, and the kernel ends it at our death.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
