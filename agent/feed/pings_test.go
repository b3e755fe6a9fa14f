package feed

import (
	"bytes"
	"testing"
	"time"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/frame"
)

// answers is a Desk that always gives the same answer.
type answers struct {
	Desk
	answer Answer
	asked  hold.Event
}

func (a *answers) Do(ev hold.Event) Answer {
	a.asked = ev
	return a.answer
}

// A trainer relies on the last PONG that it got: it says how long the session is good. So a trainer
// that is being ended gets none, and a PONG of 0 is sent only when the session is over.
func TestAPingIsAnsweredWithWhatIsLeftOfTheSessionUnlessItsSenderIsBeingEnded(t *testing.T) {
	for _, c := range []struct {
		answer Answer
		want   string // the PONG; "": none
	}{
		{Answer{Session: 4400 * time.Millisecond}, `{"t":17,"session_ms":4400}`},
		{Answer{Session: time.Microsecond}, `{"t":17,"session_ms":1}`},
		{Answer{}, `{"t":17,"session_ms":0}`},
		{Answer{Mute: true}, ""},
	} {
		d := &answers{answer: c.answer}
		tr := &trainer{srv: &Server{cfg: Config{Desk: d}}, out: newOutbox(), number: 7}
		tr.out.greeted = true
		if err := tr.handle(t.Context(), frame.Header{Type: frame.TypePing}, []byte(`{"t":17}`)); err != nil {
			t.Fatal(err)
		}
		if p, ok := d.asked.(*hold.Ping); !ok || p.Worker != 7 {
			t.Errorf("the core got %T %+v", d.asked, d.asked)
		}
		got, buf := "", []byte(nil)
		if r := bytes.NewReader(tr.out.buf); r.Len() > 0 {
			h, payload, err := frame.ReadControl(r, &buf)
			if err != nil || h.Type != frame.TypePong {
				t.Fatalf("%v, %v", h, err)
			}
			got = string(payload)
		}
		if got != c.want {
			t.Errorf("if the core says %+v, the PONG is %q, want %q", c.answer, got, c.want)
		}
	}
}
