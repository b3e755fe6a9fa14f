package testbroker

import (
	"os/exec"
	"syscall"
)

// endsWithUs: a test that is killed leaves no broker behind.
func endsWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
