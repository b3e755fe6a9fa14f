//go:build !linux

package child

import "syscall"

// ownGroup: only Linux can end a process at our death.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
