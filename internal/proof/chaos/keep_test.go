package chaos

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/headrace/headrace/internal/proof/child"
)

// Who removes the master's state holds the lock and ends everybody: a master that came
// up beside that would lose its store under its feet, and end by itself.
func TestNobodyIsStartedWhileTheMastersStateIsRemoved(t *testing.T) {
	p, err := child.Start(t.TempDir(), "master", nil, "true")
	if err != nil {
		t.Fatal(err)
	}
	c := &crew{rnd: rand.New(rand.NewPCG(1, 1)), calm: true, master: p, quit: make(chan struct{})}
	asked := false
	c.keep(t.Context(), -1, &c.master, func() (*child.Process, error) { // ends with the error
		asked = true
		if c.mu.TryLock() {
			c.mu.Unlock()
			t.Error("it is started while somebody else may hold the lock")
		}
		return nil, errors.New("enough")
	})
	if !asked || c.master != p {
		t.Errorf("asked: %v, the master is %v", asked, c.master)
	}
}

// The only stream of rank 0 may end before those of the others: then nobody restored
// the shared model whose server was killed behind that.
func TestWhoHasSeenTheEndStartsAgainWhenTheSharedModelIsGone(t *testing.T) {
	p, err := child.Start(t.TempDir(), "server", nil, "true")
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done
	done, at := &seat{rank: 0, done: true}, &seat{rank: 1}
	c := &crew{server: p, seats: []*seat{done, at}, quit: make(chan struct{}), choices: choices{servers: true}}
	tr := &trouble{crew: c, tell: func(string, ...any) {}}
	for seed := uint64(1); tr.kills == 0; seed++ { // until its turn is to kill the server
		tr.rnd = rng(seed)
		tr.people(t.Context())
	}
	close(c.quit) // nobody waits for another reason
	if !c.restarted(done.group) {
		t.Error("rank 0, who restores, is not started again")
	}
	c.seats[1].done = true
	for _, s := range c.seats {
		s.group = c.group
	}
	kills := tr.kills
	for seed := range uint64(100) {
		tr.rnd = rng(seed)
		tr.people(t.Context())
	}
	if tr.kills != kills {
		t.Error("the server is killed when all are done, and nobody is left to restore the model")
	}
}
