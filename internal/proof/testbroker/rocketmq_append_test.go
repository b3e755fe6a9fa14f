//go:build rocketmq

package testbroker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/remoting"
)

// When the broker is killed, a request that is on its way is carried out or not. At the end every record
// is in the queue once, in order.
func TestEachRecordComesOnceIntoARocketMQQueueThroughKills(t *testing.T) {
	b, err := StartRocketMQ(t.Context(), RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.CreateTopic(t.Context(), "t", 1); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("t")
	defer a.Close()
	const batches, batch = 300, 20
	killed := make(chan error, 1)
	for n := range batches {
		if n == batches/3 || n == 2*batches/3 {
			if n > batches/3 {
				if err := <-killed; err != nil {
					t.Fatal(err)
				}
			}
			go func() { killed <- errors.Join(b.Kill(), b.Start(t.Context())) }() // its result is read below
		}
		var values [][]byte
		for i := range batch {
			values = append(values, fmt.Append(nil, n*batch+i))
		}
		if n%7 == 0 { // one record alone, not a batch
			for i, v := range values {
				if err := a.Append(t.Context(), 0, int64(n*batch+i), [][]byte{v}, func() {}); err != nil {
					t.Fatal(err)
				}
			}
		} else if err := a.Append(t.Context(), 0, int64(n*batch), values, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if err := b.Reaches(t.Context(), remoting.Queue{Topic: "t"}, batches*batch); err != nil {
		t.Fatal(err)
	}
	if end, err := a.End(t.Context(), 0); err != nil || end != batches*batch {
		t.Errorf("the queue ends at %d (%v), want %d", end, err, batches*batch)
	}
	for at := int64(0); at < batches*batch; {
		answer, err := b.Client().Call(t.Context(), b.Addr(), remoting.Pull{Queue: remoting.Queue{Topic: "t"}, Group: "g", Offset: at, Most: 32}.Command())
		if err != nil {
			t.Fatal(err)
		}
		for m := answer.Body; len(m) > 0; at++ {
			size, length := binary.BigEndian.Uint32(m), int(binary.BigEndian.Uint32(m[84:])) // where the length of the body is, with IPv4 hosts
			if body := string(m[88 : 88+length]); body != fmt.Sprint(at) {
				t.Fatalf("offset %d holds %q", at, body)
			}
			m = m[size:]
		}
	}

	if err := a.Append(t.Context(), 0, 17, [][]byte{[]byte("x")}, func() {}); err == nil || !strings.Contains(err.Error(), "another program writes to it") {
		t.Errorf("after a record of another program: %v", err)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := a.Append(ctx, 0, 0, [][]byte{[]byte("x")}, func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a broker: %v", err)
	}
}

// The end of a queue grows some milliseconds after an answer. End waits for it.
func TestWhereARocketMQQueueEndsIsToldWithAllThatWasAnswered(t *testing.T) {
	b, err := StartRocketMQ(t.Context(), RocketMQOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.CreateTopic(t.Context(), "t", 1); err != nil {
		t.Fatal(err)
	}
	a := b.NewAppender("t")
	defer a.Close()
	const batches, batch = 60, 50 // without the wait, 3 of 10 ends are too low
	values := make([][]byte, batch)
	for i := range values {
		values[i] = []byte("a record")
	}
	for n := int64(0); n < batches*batch; n += batch {
		if err := a.Append(t.Context(), 0, n, values, func() {}); err != nil {
			t.Fatal(err)
		}
		if end, err := a.End(t.Context(), 0); err != nil || end != n+batch {
			t.Fatalf("the queue ends at %d (%v), and the broker has answered for %d records", end, err, n+batch)
		}
	}
}
