package remoting

import (
	"context"
	"sync/atomic"
	"testing"
)

func TestABrokerThatHasCountedNothingYetIsAskedAgain(t *testing.T) {
	var asked atomic.Int32
	addr := server(t, func(c Command) *Command {
		a := answer(c, nil)
		switch n := asked.Add(1); {
		case n < 3:
			a.Code, a.Remark = SystemError, "java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast(LinkedList.java:261)"
		case n == 4:
			a.Code, a.Remark = SystemError, "java.lang.NullPointerException"
		default:
			a.Body = []byte(`{"table": {"commitLogMaxOffset": "7"}}`)
		}
		return a
	})
	c := NewClient(Options{NameServers: []string{addr}})
	defer c.Close()
	info, err := c.Runtime(t.Context(), addr)
	if err != nil || info["commitLogMaxOffset"] != "7" || asked.Load() != 3 {
		t.Fatalf("%v (%v) after %d questions", info, err, asked.Load())
	}
	if _, err := c.Runtime(t.Context(), addr); CodeOf(err) != SystemError || asked.Load() != 4 {
		t.Fatalf("after another failure: %v after %d questions", err, asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	never := server(t, func(c Command) *Command {
		cancel() // while the broker is being asked
		a := answer(c, nil)
		a.Code, a.Remark = SystemError, "java.util.NoSuchElementException"
		return a
	})
	if _, err := c.Runtime(ctx, never); err == nil {
		t.Fatal("got an answer, although the context had ended")
	}
	asked.Store(-1000) // the broker never has counted anything
	if _, err := c.Runtime(t.Context(), addr); CodeOf(err) != SystemError || asked.Load() != runtimeTries-1000 {
		t.Fatalf("%v after %d questions", err, asked.Load()+1000)
	}
}
