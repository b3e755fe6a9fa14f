package kafka

import (
	"context"
	"errors"
	"net"
	"testing"
)

// The broker takes connections and does not answer. A caller that gives up does not wait until those that came
// before it have their error.
func TestACallerThatGivesUpDoesNotWaitForTheFirstAnswerOfABroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, ended := make(chan net.Conn, 100), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			asked <- nc
		}
	}()
	defer func() {
		l.Close()
		<-ended
		for close(asked); ; {
			nc, more := <-asked
			if !more {
				return
			}
			nc.Close()
		}
	}()
	c := newClient(&Options{Brokers: []string{l.Addr().String()}, Topics: []string{"t"}})
	defer c.close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- c.check(ctx) }()
	defer func(nc net.Conn) { nc.Close() }(<-asked)
	gone, leave := context.WithCancel(t.Context())
	leave()
	second := make(chan error, 1)
	go func() { second <- c.check(gone) }()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case err := <-first:
		t.Errorf("it waits until the one before it has the error %v", err)
		<-second
	}
}
