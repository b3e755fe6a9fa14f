//go:build kafka || pulsar || rocketmq

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// sharedBroker is one broker for tests that run one after the other. A test may kill or freeze it, if
// it starts or thaws it again. Each test uses topics and groups of its own.
type sharedBroker[B interface{ Close() error }] struct {
	start func(context.Context) (B, error)

	broker B
	runs   bool
	listed bool
}

// get returns the broker. The first test that needs it starts it, and it is closed after the last
// test. A test that fails may leave the broker in any state, so the next test starts another one.
func (s *sharedBroker[B]) get(t *testing.T) B {
	t.Helper()
	if !s.runs {
		b, err := s.start(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		s.broker, s.runs = b, true
	}
	if !s.listed {
		atEnd, s.listed = append(atEnd, s.close), true
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s.broker
}

func (s *sharedBroker[B]) close() error {
	if !s.runs {
		return nil
	}
	s.runs = false
	return s.broker.Close()
}

var topics atomic.Int64

// anotherTopic returns a name for a topic that no other test uses.
func anotherTopic(of string) string { return fmt.Sprintf("%s-%d", of, topics.Add(1)) }
