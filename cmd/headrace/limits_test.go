package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

// Callers with valid credentials cannot use up the master's memory by doing all that they are
// allowed to do: here 2,000 of them stay connected, and 64 messages of 48 MiB are sent at once.
func TestManyCallersAndLargeMessagesDoNotTakeTheMastersMemory(t *testing.T) {
	const idle, huge, size, limit = 2000, 64, 48 << 20, 512 << 20
	files := unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Max < 2*idle {
		t.Fatalf("this test opens %d connections, and the system allows %d files (%v): raise `ulimit -Hn`", idle, files.Max, err)
	}
	files.Cur = files.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	dial := func() *grpc.ClientConn {
		c, err := link.Dial(link.Target{State: w.state()}, link.TLS{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for range idle {
		c := dial()
		c.Connect()
		for s := c.GetState(); s != connectivity.Ready; s = c.GetState() {
			if !c.WaitForStateChange(t.Context(), s) {
				t.Fatal("the test's time was up before all connections were ready")
			}
		}
	}
	t.Logf("%d connections are idle: %s", idle, memoryOf(t, m))

	seed := byte(time.Now().UnixNano())
	text := strings.Repeat(string(rune('a'+seed%26)), size)
	var calls sync.WaitGroup
	answers := make(chan error, huge)
	one := dial() // half of the messages are sent over this one connection, which one caller may do
	for i := range huge {
		c := one
		if i%2 == 0 {
			c = dial()
		}
		calls.Go(func() {
			var err error
			switch i % 4 / 2 {
			case 0:
				_, err = headracev1.NewCheckpointsClient(c).Rewind(t.Context(), &headracev1.RewindRequest{Job: "default", Body: []byte(text)})
			case 1:
				var s grpc.BidiStreamingClient[headracev1.AgentMessage, headracev1.MasterMessage]
				if s, err = headracev1.NewShardsClient(c).Session(t.Context()); err == nil {
					_ = s.Send(&headracev1.AgentMessage{Hello: &headracev1.Hello{Protocol: 1, Agent: text}})
					_, err = s.Recv()
				}
			}
			answers <- err
		})
	}
	served := 0
	for done := 0; done < huge; {
		select {
		case err := <-answers:
			done++
			if err == nil {
				t.Error("a message without any meaning was accepted, want an error")
			}
			if c := status.Code(err); c != codes.InvalidArgument && c != codes.Unavailable && c != codes.FailedPrecondition && c != codes.ResourceExhausted {
				t.Errorf("a big message was answered with %s (%.300s), want one of InvalidArgument, Unavailable, FailedPrecondition and ResourceExhausted", c, err)
			}
		default: // the messages are still under way: other callers must be served
			w.ok("list")
			served++
		}
	}
	calls.Wait()
	w.ok("list")
	t.Logf("%d other calls were served while %d messages of %d MiB came in: %s", served, huge, size>>20, memoryOf(t, m))
	if peak := figure(t, m, "VmHWM"); peak > limit {
		t.Errorf("the master used up to %d MiB of memory, want at most %d", peak>>20, limit>>20)
	}
	if errs := m.err.String(); len(errs) > 1<<20 {
		t.Errorf("the master's log has %d bytes, want at most 1 MiB: it must not repeat what callers send", len(errs))
	}
	m.stop()
}

func memoryOf(t *testing.T, p *proc) string {
	return fmt.Sprintf("the master uses %d MiB, and used up to %d MiB", figure(t, p, "VmRSS")>>20, figure(t, p, "VmHWM")>>20)
}

// figure returns the value of a field of /proc/PID/status in bytes.
func figure(t *testing.T, p *proc, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == field+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("%s is not in /proc/PID/status", field)
	return 0
}
