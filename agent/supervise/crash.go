package supervise

import "syscall"

// crashSignals are those that a process gets for its own doing.
var crashSignals = map[syscall.Signal]bool{
	syscall.SIGSEGV: true, syscall.SIGBUS: true, syscall.SIGABRT: true, syscall.SIGILL: true, syscall.SIGFPE: true, syscall.SIGSYS: true,
}

// Crashed says whether the process crashed by such a signal, or a shell says so of its
// child (128 and the signal). SIGKILL and SIGTERM come from others; an exit status may be
// any error of the program.
func (e End) Crashed() bool {
	return crashSignals[e.Signal] || e.Signal == 0 && e.Code > 128 && crashSignals[syscall.Signal(e.Code-128)]
}

// killed says whether the process ended by SIGKILL, or a shell says so of its child.
func (e End) killed() bool {
	return e.Signal == syscall.SIGKILL || e.Signal == 0 && e.Code == 128+int(syscall.SIGKILL)
}
