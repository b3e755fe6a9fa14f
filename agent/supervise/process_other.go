//go:build !linux

package supervise

import "syscall"

// Only Linux runs trainers: elsewhere this package only compiles, for the tools.
const runsHere = false

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func awaitEnd(int) {}
