package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silentBroker starts a listener that accepts connections and never answers, and returns its address.
func silentBroker(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // until the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().String()
}

// lostBroker returns an address that is like that of a broker whose machine is gone: an attempt to
// connect gets no answer. For this a socket listens there whose queue of connections is full.
func lostBroker(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port)
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the kernel still takes connections to a listener with a full queue, so this test cannot be done")
	return ""
}

// When a broker does not answer, these verbs say so. After 15 s they used to say "no master answers", although there was a master that worked.
func TestABrokerThatDoesNotAnswerIsNotAMissingMaster(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{"silent": silentBroker, "lost": lostBroker} {
		for _, verb := range []string{"apply", "up", "run"} {
			t.Run(name+" "+verb, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				broker := start(t)
				w.write("silent.yaml", fmt.Sprintf("name: events\nkafka: {brokers: [%q], topic: events}\ndecode: lines\n", broker))
				args := []string{verb, "-f", "silent.yaml"}
				switch verb {
				case "run":
					args = append(args, "--", w.self(""))
				case "apply":
					w.up()
				}
				r := w.run(args...)
				for tries := 0; verb == "apply" && r.code == exitUnreachable && tries < 5; tries++ { // the master has 5 s to tell, and the machine may stand still for longer
					r = w.run(args...)
				}
				for _, part := range []string{"dataset events was not applied", "Kafka at " + broker + " does not answer", "hint: is it up"} {
					if !strings.Contains(r.err, part) {
						t.Errorf("the error does not say %q", part)
					}
				}
				if r.code != exitFailed || strings.Contains(r.err, "no master answers") {
					t.Errorf("exit code %d, want %d and nothing about the master:\n%s", r.code, exitFailed, r.err)
				}
			})
		}
	}
}
