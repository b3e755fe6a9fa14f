package sim

import (
	"testing"

	"github.com/headrace/headrace/agent/hold"
)

// A trainer that has not restored yet has nothing in hand, and says so at once, as the client does. It may
// try for a long time, while others train and save exactly.
func TestWhoHasNoStreamYetHoldsNobodyUp(t *testing.T) {
	w := &World{dice: newDice(1, 0)}
	tr, agent := &trainer{welcomed: true, generation: 1}, &process{}
	tr.begin(w, "trainer")
	agent.begin(w, "agent")
	var got []any
	tr.l = w.newLink(microsecond, millisecond, &tr.process, agent)
	tr.l.ends[1].take = func(msg any) { got = append(got, msg) }
	tr.told(hold.PauseYields{On: true, Cut: 7})
	for do, ok := w.next(); ok; do, ok = w.next() {
		do()
	}
	if len(got) != 1 || got[0] != (nowPaused{7}) {
		t.Errorf("the agent of a trainer without a stream heard %v, want that it yields nothing", got)
	}
}
