package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

// onTerminal starts the binary with a terminal of 80 x 24 as its input and output. What it
// shows is collected in p.out, and what is written to keys is its input.
func (w *world) onTerminal(args ...string) (p *proc, keys *os.File) {
	w.t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	fd := int(keys.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		w.t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tty.Close()
	p = &proc{t: w.t, cmd: exec.Command(binary, args...), out: &output{}, err: &output{}, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = w.dir, w.env
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	shown := make(chan struct{})
	go func() { // until no process has the terminal open any more
		defer close(shown)
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			_, _ = p.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = p.cmd.Wait()
		<-shown
		close(p.done)
	}()
	w.t.Cleanup(func() { p.kill(); keys.Close() })
	return p, keys
}

func TestTopRepaintsATerminalAndGivesItBack(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	top, keys := w.onTerminal("top", "--every", "100ms")
	paintings := func() int { return strings.Count(top.out.String(), terminal.Home+"job default") }
	top.until("the second painting of top", func() bool { return paintings() >= 2 })
	if err := unix.IoctlSetWinsize(int(keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{}); err != nil { // as a serial line has it
		t.Fatal(err)
	}
	before := paintings()
	top.until("two paintings of top on a terminal that has no size", func() bool { return paintings() >= before+2 })
	if !strings.HasPrefix(top.out.String(), terminal.EnterScreen) {
		t.Errorf("top begins with %q, want it to switch to the other screen first", top.out.String()[:40])
	}
	m.signal(syscall.SIGKILL)
	m.wait()
	top.until("top's message that the master is lost", func() bool { return strings.Contains(top.out.String(), "! no master answers") })
	w.start("master", "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir)
	top.until("top's message that the master is back", func() bool { return strings.Contains(top.out.String(), "the master is back, term 2") })
	top.signal(os.Interrupt)
	if r := top.wait(); r.code != exitOK || !strings.HasSuffix(r.out, terminal.LeaveScreen) {
		t.Errorf("top ended with exit code %d and %q, want %d and a switch back to the first screen at the end", r.code, r.out[max(0, len(r.out)-40):], exitOK)
	}
}

func TestDeleteAsksOnATerminal(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	w.master()
	w.ok("apply", "-f", "clicks.yaml")
	for _, tc := range []struct {
		answer string
		code   int
		left   int
	}{{"\n", exitFailed, 1}, {"n\n", exitFailed, 1}, {"y\n", exitOK, 0}} {
		p, keys := w.onTerminal("delete", "clicks")
		p.until("the question", func() bool { return strings.Contains(p.out.String(), "Go on? [y/N]") })
		if _, err := keys.WriteString(tc.answer); err != nil {
			t.Fatal(err)
		}
		if r := p.wait(); r.code != tc.code {
			t.Errorf("delete with the answer %q: exit code %d, want %d: %s", tc.answer, r.code, tc.code, r.out)
		}
		if n := len(decoded[[]view.Dataset](t, w.ok("list", "-o", "json"))); n != tc.left {
			t.Errorf("after delete with the answer %q there are %d datasets, want %d", tc.answer, n, tc.left)
		}
	}
	w.ok("apply", "-f", "clicks.yaml")
	p, _ := w.onTerminal("delete", "clicks")
	p.until("the question", func() bool { return strings.Contains(p.out.String(), "Go on? [y/N]") })
	p.signal(os.Interrupt)
	if r := p.wait(); r.code != exitForced {
		t.Errorf("delete interrupted at its question: exit code %d, want %d", r.code, exitForced)
	}
}
