//go:build !linux

package child

import "syscall"

// ownGroup gives the process a group of its own. Only Linux can end it when we die.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
