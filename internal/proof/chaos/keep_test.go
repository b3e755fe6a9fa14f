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

// loseState holds the lock while it ends all processes and removes the master's state. A master that
// started at that moment would lose its store while it runs, and end by itself.
func TestNobodyIsStartedWhileTheMastersStateIsRemoved(t *testing.T) {
	p, err := child.Start(t.TempDir(), "master", nil, "true")
	if err != nil {
		t.Fatal(err)
	}
	c := &crew{rnd: rand.New(rand.NewPCG(1, 1)), calm: true, master: p, quit: make(chan struct{})}
	asked := false
	c.keep(t.Context(), -1, &c.master, func() (*child.Process, error) { // the error ends keep
		asked = true
		if c.mu.TryLock() {
			c.mu.Unlock()
			t.Error("the master is started without the lock, while its state may be removed")
		}
		return nil, errors.New("enough")
	})
	if !asked || c.master != p {
		t.Errorf("asked to start: %v, want true; the master is %v, want the old one, since the start failed", asked, c.master)
	}
}

// Rank 0 restores a shared model. Its only stream may end before the streams of the others. If the
// server was killed after that, nobody restored the model.
func TestWhoHasSeenTheEndStartsAgainWhenTheSharedModelIsGone(t *testing.T) {
	p, err := child.Start(t.TempDir(), "server", nil, "true")
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done
	done, at := &seat{rank: 0, done: true}, &seat{rank: 1}
	c := &crew{server: p, seats: []*seat{done, at}, quit: make(chan struct{}), choices: choices{servers: true}}
	tr := &trouble{crew: c, tell: func(string, ...any) {}}
	for seed := uint64(1); tr.kills == 0; seed++ { // until it kills the server
		tr.rnd = rng(seed)
		tr.people(t.Context())
	}
	close(c.quit) // so that restarted returns if it has nothing to report
	if !c.restarted(done.group) {
		t.Error("the server was killed when rank 0 was done, and rank 0 is not started again to restore the model")
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
		t.Error("the server is killed when all ranks are done, and none is left to restore the model")
	}
}

// A new master of private models waits until every rank has restored. One rank may be killed after
// its last checkpoint, when all others are done. If these did not start again, it would wait for ever.
func TestWhoHasSeenTheEndStartsAgainWhenTheMastersStateIsGone(t *testing.T) {
	for model, again := range map[string]bool{"private": true, "replicated": false} {
		done, killed := &seat{rank: 0, done: true}, &seat{rank: 1}
		c := &crew{o: Options{Model: model}, seats: []*seat{done, killed}, quit: make(chan struct{})}
		close(c.quit) // so that restarted returns if it has nothing to report
		c.again()
		if c.restarted(done.group) != again { // a replicated group begins again with its killed member
			t.Errorf("%s: rank 0 is done and starts again: %v", model, !again)
		}
	}
}

// The server of a shared model was killed when all records were in. Its trainers may be told so only
// after rank 0 has restored the model: until then the master counts records that are lost.
func TestALifeOfTheServerIsRestoredOnceAJournalSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank-0-1.journal")
	for server, want := range []bool{true, true, false} {
		if restoredIn(nil, server) != want {
			t.Errorf("restoredIn without a journal, life %d of the server: got %v", server, want)
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
			t.Errorf("a journal says that life %d of the server was restored; restoredIn for life 2: got %v", server, !want)
		}
	}
}
