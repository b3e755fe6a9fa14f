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

// silentBroker accepts connections and never answers.
func silentBroker(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
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

// lostBroker acts like a broker whose machine is gone: connecting to it never ends. Its
// queue of connections is full.
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
	t.Fatal("this kernel takes connections that nobody accepts")
	return ""
}

// These verbs used to say "no master answers" after 15 s, of a master that was well.
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
				for _, part := range []string{"dataset events was not applied", "Kafka at " + broker + " does not answer", "hint: is it up"} {
					if !strings.Contains(r.err, part) {
						t.Errorf("not said: %q", part)
					}
				}
				if r.code != exitFailed || strings.Contains(r.err, "no master answers") {
					t.Errorf("exit %d:\n%s", r.code, r.err)
				}
			})
		}
	}
}
