package remoting

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/proof/leaks"
)

// counted counts the writes to a connection.
type counted struct {
	net.Conn
	writes *atomic.Int32
}

func (c counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestRequestsThatAreSentTogetherGetTheirOwnAnswers(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent())
	addr := server(t, func(c Command) *Command { return answer(c, nil) })
	c := NewClient(Options{NameServers: []string{addr}})
	defer c.Close()
	var writes atomic.Int32
	c.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := c.dialNet(ctx, addr)
		return counted{nc, &writes}, err
	}
	memory := make([]byte, 0, 100)
	all, err := c.StartAll(t.Context(), addr, []Request{
		{&Command{Code: 1, Body: []byte("one")}, memory}, {&Command{Code: 2, Body: []byte("two")}, nil}, {&Command{Code: 3}, nil}})
	if err != nil || len(all) != 3 {
		t.Fatalf("%d requests: %v", len(all), err)
	}
	for i, want := range []string{"one", "two", ""} {
		if a, err := all[i].Wait(t.Context(), time.Minute); err != nil || string(a.Body) != want {
			t.Errorf("request %d: %q, %v", i, a.Body, err)
		}
	}
	if n := writes.Load(); n != 1 {
		t.Errorf("the requests took %d writes", n)
	}
	one, err := c.connect(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	one.fail(errClosed)
	if _, err := one.start(t.Context(), []Request{{&Command{Code: 4}, nil}, {&Command{Code: 5}, nil}}); err == nil || len(one.waiting) > 0 {
		t.Errorf("on a connection that has ended: %v, %d requests wait", err, len(one.waiting))
	}
}
