package chaos

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/headrace/headrace/internal/child"
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
