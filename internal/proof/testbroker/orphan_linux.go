package testbroker

import (
	"os/exec"
	"syscall"
)

// endsWithUs makes the kernel end the broker when this process dies: a test that is killed leaves none.
func endsWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
