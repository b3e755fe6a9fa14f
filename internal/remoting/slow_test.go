package remoting

import (
	"bufio"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// overASlowLink answers one request. The body comes in pieces, one every four seconds of the test's
// virtual time. If the link breaks, only half of the pieces come.
func overASlowLink(t *testing.T, pieces int, breaks bool) *Pending {
	ours, theirs := net.Pipe()
	c := newConn("broker:1", ours)
	ended := make(chan struct{})
	t.Cleanup(func() { c.close(); theirs.Close(); <-ended })
	const piece = 1000
	go func() {
		defer close(ended)
		cmd, _, err := readHeader(bufio.NewReader(theirs))
		if err != nil {
			return
		}
		cmd.Flag, cmd.Body = flagAnswer, make([]byte, pieces*piece)
		frame, err := cmd.append(nil)
		if err != nil {
			return
		}
		if breaks {
			pieces /= 2
		}
		head := len(frame) - len(cmd.Body)
		for i := range pieces {
			time.Sleep(4 * time.Second)
			if _, err := theirs.Write(frame[:head+piece]); err != nil {
				return
			}
			if frame = frame[head+piece:]; i == 0 {
				head = 0
			}
		}
	}()
	all, err := c.start(t.Context(), []Request{{Command: &Command{Code: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestAnAnswerIsWaitedForAsLongAsItsBytesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := overASlowLink(t, 15, false)
		a, err := p.Wait(t.Context(), 10*time.Second)
		if err != nil || len(a.Body) != 15_000 {
			t.Errorf("%d bytes came (%v)", len(a.Body), err)
		}
	})
}

func TestALinkThatBreaksInTheMiddleOfAnAnswerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := time.Now()
		p := overASlowLink(t, 10, true)
		_, err := p.Wait(t.Context(), 10*time.Second)
		if !errors.Is(err, ErrUnreachable) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it says %v", err)
		}
		if took := time.Since(sent); took < 30*time.Second || took > 35*time.Second { // the last bytes came after 20 s
			t.Errorf("it took %v", took)
		}
	})
}

// While large answers come, a request that the broker has lost is not waited for without an end.
func TestARequestThatIsLostBetweenLargeAnswersIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newConn("broker:1", ours)
		ended := make(chan struct{})
		defer func() { c.close(); theirs.Close(); <-ended }()
		go func() {
			defer close(ended)
			other := Command{Opaque: 1 << 30, Flag: flagAnswer, Body: make([]byte, 1000)}
			frame, _ := other.append(nil)
			for {
				for _, part := range [][]byte{frame[:len(frame)/2], frame[len(frame)/2:]} {
					if _, err := theirs.Write(part); err != nil {
						return
					}
					time.Sleep(700 * time.Millisecond) // of virtual time; for half of it the connection is in a body
				}
			}
		}()
		go func() { _, _, _ = readHeader(bufio.NewReader(theirs)) }()
		all, err := c.start(t.Context(), []Request{{Command: &Command{Code: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		if _, err := all[0].Wait(t.Context(), 10*time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it says %v", err)
		}
		if took := time.Since(sent); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
