package chaos

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// A new master of private models waits until every rank has restored. One rank may be killed
// behind its last checkpoint when all others are done already: without them it waited for ever.
func TestWhoHasSeenTheEndStartsAgainWhenTheMastersStateIsGone(t *testing.T) {
	for model, again := range map[string]bool{"private": true, "replicated": false} {
		done, killed := &seat{rank: 0, done: true}, &seat{rank: 1}
		c := &crew{o: Options{Model: model}, seats: []*seat{done, killed}, quit: make(chan struct{})}
		close(c.quit) // nobody waits for another reason
		c.again()
		if c.restarted(done.group) != again { // a replicated group begins again with its killed member
			t.Errorf("%s: rank 0 starts again: %v", model, !again)
		}
	}
}

// The server of a shared model was killed when all was in. Its trainers may not be told that
// all is in before rank 0 has restored the model: until then the master counts what was lost.
func TestALifeOfTheServerIsRestoredOnceAJournalSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank-0-1.journal")
	for server, want := range []bool{true, true, false} {
		if restoredIn(nil, server) != want {
			t.Errorf("life %d of the server needs to be restored: %v", server, want)
		}
	}
	for server, want := range map[uint16]bool{1: false, 2: true} {
		entry := append([]byte("CHJ1"), make([]byte, entrySize-4)...)
		binary.LittleEndian.PutUint16(entry[4:], kindRestored)
		binary.LittleEndian.PutUint16(entry[6:], server)
		if err := os.WriteFile(path, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		if restoredIn([]string{path + "-not", path}, 2) != want {
			t.Errorf("the server's life 2, when life %d was restored: %v", server, !want)
		}
	}
}
