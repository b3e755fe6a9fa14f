package agent_test

import (
	"errors"
	"io"
	"testing"

	"github.com/headrace/headrace/internal/frame"
)

// If an agent stops, its trainers look for the next one until the TTL has passed. So a stopping agent
// must not tell a trainer that a request has failed, whatever the request was.
func TestAnAgentThatStopsRefusesNobody(t *testing.T) {
	open := frame.Open{Dataset: "lines", Rows: 10, Track: true, Ack: frame.AckStep}
	for name, ask := range map[string]func(*trainer, *stream) error{
		"a trainer that comes back": func(tr *trainer, s *stream) error {
			h := tr.hello
			h.Resume = []frame.ResumeEntry{s.resume(open)}
			_, err := hello(tr.socket, h)
			return err
		},
		"a stream that is opened": func(tr *trainer, s *stream) error {
			_, err := tr.open(2, open)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := killSetup(t)
			a := start(t, m, socketIn(t), nil)
			tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
			s := must(tr.open(1, open))(t)
			check(t, s.credit(1))
			must(s.next(0))(t)
			m.silent(true)
			answer := make(chan error, 1)
			go func() { answer <- ask(tr, s) }()
			select {
			case <-m.asked:
			case <-deadline(t):
				t.Fatal("the agent did not ask the master in time")
			}
			check(t, a.stop())
			if err := <-answer; !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the trainer was told %v", err)
			}
			tr.drop()
		})
	}
}

// A master that ends while it is asked about a dataset is asked again when it is back.
func TestAStreamThatIsOpenedWhileTheMasterEndsWaitsForIt(t *testing.T) {
	m, _ := killSetup(t)
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	m.silent(true)
	opened := make(chan error, 1)
	go func() {
		_, err := tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true})
		opened <- err
	}()
	select {
	case <-m.asked:
	case <-deadline(t):
		t.Fatal("the master is not asked")
	}
	m.stop()
	m.silent(false)
	m.serve(m.addr)
	check(t, <-opened)
	tr.bye()
}
