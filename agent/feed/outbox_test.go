package feed

import (
	"bytes"
	"testing"

	"github.com/headrace/headrace/internal/frame"
)

// A trainer comes back with unanswered steps. They may become durable before its WELCOME is
// written. WELCOME must still come first, because a trainer takes any other answer to HELLO for
// a breach of the protocol.
func TestWelcomeIsTheFirstAnswerWhateverWasSaidBefore(t *testing.T) {
	o := newOutbox()
	o.send(frame.TypeAcked, 1, frame.Acked{Through: 7})
	o.send(frame.TypeState, 1, frame.State{State: frame.StateWait})
	o.send(frame.TypeWelcome, 0, frame.Welcome{Protocol: frame.Protocol})
	o.send(frame.TypeAcked, 1, frame.Acked{Through: 8})
	var got []frame.Type
	r, buf := bytes.NewReader(o.buf), []byte(nil)
	for r.Len() > 0 {
		h, _, err := frame.ReadControl(r, &buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, h.Type)
	}
	want := []frame.Type{frame.TypeWelcome, frame.TypeAcked, frame.TypeState, frame.TypeAcked}
	if len(got) != len(want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("sent %v, want %v", got, want)
		}
	}
}
