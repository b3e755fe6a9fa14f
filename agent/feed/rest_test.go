package feed

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// After the deadline the agent reads the bytes that lie in the socket, and does not wait for more. A
// child that has inherited the socket may still write to it.
func TestBehindTheDeadlineWhatLiesInTheSocketIsReadAndNoMore(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		ends[i] = c.(*net.UnixConn)
		defer func() { _ = c.Close() }()
	}
	in := &rest{UnixConn: ends[0], left: -1}
	say := func(what string) {
		if _, err := ends[1].Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4)
	say("step")
	if n, err := in.Read(buf); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	say("step by step")
	if err := ends[0].SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Read(buf); string(buf[:n]) != "step" || err != nil {
		t.Fatalf("after the deadline the first read gave %q (%v), want step", buf[:n], err)
	}
	say(" and on")
	all, err := io.ReadAll(in)
	if string(all) != " by step" || err != nil {
		t.Errorf("read %q (%v), want only the bytes that were there at the deadline", all, err)
	}
}
