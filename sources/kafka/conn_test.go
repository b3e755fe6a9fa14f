package kafka

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// served dials a server that runs serve for the connection.
func served(t *testing.T, serve func(net.Conn)) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serve(c)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	c, err := dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answerBytes is an answer of n bytes to a request of ours, after its size.
func answerBytes(n int) []byte {
	b := make([]byte, 4+n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	binary.BigEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], correlation)
	return b
}

// A small answer after a large one comes at once: the reader does not wait for as many bytes again. A large
// answer may come in small pieces, which the broker sends one after the other.
func TestLargeAndSmallAnswersComeInTurn(t *testing.T) {
	sizes := []int{5, 3<<20 + 1, 100, readPiece, readPiece + 1, 5, largeRead, largeRead + 5, 2 << 20, 4097}
	c := served(t, func(c net.Conn) {
		var request [3]byte
		for _, n := range sizes {
			if _, err := io.ReadFull(c, request[:]); err != nil {
				return
			}
			for b := answerBytes(n); len(b) > 0; {
				k := min(len(b), 30_011)
				if _, err := c.Write(b[:k]); err != nil {
					return
				}
				b = b[k:]
			}
		}
	})
	for _, n := range sizes {
		came, pieces := 0, 0
		x := &exchange{request: []byte("ask"), limit: 4 << 20, came: func(answer []byte) {
			if len(answer) <= came {
				t.Errorf("%d bytes came after %d", len(answer), came)
			}
			came, pieces = len(answer), pieces+1
		}}
		if err := x.over(c); err != nil {
			t.Fatalf("an answer of %d bytes: %v", n, err)
		}
		if !bytes.Equal(x.answer, answerBytes(n)[4:]) || came != n || pieces > 1+n/readPiece {
			t.Errorf("an answer of %d bytes came as %d in %d pieces", n, came, pieces)
		}
	}
}

func TestAnAnswerThatBreaksOffIsAnError(t *testing.T) {
	for _, there := range []int{0, 100, readPiece, readPiece + 100, 1<<20 + 3} {
		c := served(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 3))
			_, _ = c.Write(answerBytes(1 << 20)[:there])
		})
		x := &exchange{request: []byte("ask"), limit: 4 << 20}
		if err := x.over(c); !endOfConnection(err) {
			t.Errorf("%d bytes came, then the connection ended: %v", there, err)
		}
	}
}
