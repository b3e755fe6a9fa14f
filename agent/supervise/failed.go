package supervise

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// End is how one process ended.
type End struct {
	Task               string         // "rank 2", or "worker 1" of a cluster
	Rank, Attempt, PID int            // Rank -1: it trains nothing
	Code               int            // exit status; -1 unknown
	Signal             syscall.Signal // 0: it exited by itself
	Stderr             []string       // last lines
	Final              bool           // a new start would meet the same error
	Memory             bool           // the kernel killed it for want of memory

	until int64 // lines of all workers up to its last one of stderr
	seen  bool  // hardly anything came after its last lines
}

// Bad reports an end other than exit status 0.
func (e End) Bad() bool { return e.Code != 0 || e.Signal != 0 }

// Status is "exit status 3", "killed by SIGSEGV" or "killed by SIGKILL: out of memory".
func (e End) Status() string {
	status := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		status = "killed by " + unix.SignalName(e.Signal)
	}
	if e.Memory {
		status += ": out of memory"
	}
	return status
}

func (e End) String() string {
	return fmt.Sprintf("%s (attempt %d, pid %d): %s", e.Task, e.Attempt, e.PID, e.Status())
}

// Failed says which ranks did not end well. The first of Ends failed first; the cause is
// most likely there.
type Failed struct {
	Ends             []End
	Signal           os.Signal // what we were told to end with, if we were
	Restarts, Budget int       // used, of how many
}

func (f *Failed) Error() string {
	var b strings.Builder
	if f.Signal != nil {
		fmt.Fprintf(&b, "ended by %v; ", f.Signal)
	}
	fmt.Fprintf(&b, "%d rank(s) failed after %d of %d restarts", len(f.Ends), f.Restarts, f.Budget)
	for _, e := range f.Ends {
		b.WriteString("\n  " + e.String())
		if e.Final {
			b.WriteString("; it is not started again: its error is one of a checkpoint, which a restart would meet again")
		}
	}
	if len(f.Ends) > 0 && len(f.Ends[0].Stderr) > 0 && !f.Ends[0].seen {
		fmt.Fprintf(&b, "\n  last lines of %s on stderr:", f.Ends[0].Task)
		for _, l := range f.Ends[0].Stderr {
			b.WriteString("\n    " + l)
		}
	}
	return b.String()
}

// ExitCode is the exit code of a command that ran the workers. If a signal ended the
// command, it is 128 plus that signal. Otherwise it is that of the first worker that
// failed, as a shell has it: its own exit code, or 128 plus the signal that ended it.
func (f *Failed) ExitCode() int {
	if s, ok := f.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	if len(f.Ends) == 0 {
		return 1
	}
	if first := f.Ends[0]; first.Signal != 0 {
		return 128 + int(first.Signal)
	} else if first.Code > 0 {
		return first.Code
	}
	return 1
}
