package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/proof/child"
)

// People pin checkpoints, go back to older ones, and lose the master's disk while trainers run.

const commandWithin = 30 * time.Second

// headrace runs a command of the program, as a person does.
func (t *trouble) headrace(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.o.Binary, args...)
	cmd.Dir, cmd.Env = t.dir, child.Environment(mark+t.crew.run, "HEADRACE_MASTER="+t.address, "HEADRACE_STATE="+filepath.Join(t.dir, "state"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(out)) + ": " + err.Error())
	}
	return nil
}

// some gives a random checkpoint that is there now.
func (t *trouble) some() (manifest.Checkpoint, bool) {
	all, err := manifest.Find(manifest.OS{}, t.checkpoints())
	all = slices.DeleteFunc(all, func(one manifest.Checkpoint) bool { return one.Err != nil || one.Manifest == nil })
	if err != nil || len(all) == 0 {
		return manifest.Checkpoint{}, false
	}
	return all[t.rnd.IntN(len(all))], true
}

// pin pins a checkpoint, which must then be there at the end.
func (t *trouble) pin(ctx context.Context) bool {
	one, ok := t.some()
	if !ok {
		return false
	}
	if err := t.headrace(ctx, "ckpt", "pin", one.Path); err != nil {
		t.tell("pin %s: %v", filepath.Base(one.Folder()), err) // retention was faster
		return true
	}
	if _, err := os.Stat(one.Path); err == nil { // it was still there after it was pinned, so it stays
		t.pinned = append(t.pinned, one.Path)
		t.tell("pin %s", filepath.Base(one.Folder()))
	}
	return true
}

// rewind goes back to a random checkpoint that is there now.
func (t *trouble) rewind(ctx context.Context) bool {
	one, ok := t.some()
	if !ok {
		return false
	}
	t.mu.Lock()
	t.disturbMemory(-1, -1)
	t.mu.Unlock()
	t.tell("rewind to %s (step %d)", filepath.Base(one.Folder()), one.Manifest.Step)
	if err := t.headrace(ctx, "rewind", "chaos", "--to", one.Path, "--yes"); err != nil {
		t.tell("rewind: %v", err) // the checkpoint is voided, damaged or removed, or the master is away
		return true
	}
	t.mu.Lock()
	t.disturbMemory(-1, -1)
	t.mu.Unlock()
	t.rewound++
	return true
}

// allSaved reports whether every rank of a private model has a checkpoint. A rank without one cannot
// tell an empty master what the others have trained on, and might get their records.
func (t *trouble) allSaved() bool {
	switch {
	case t.o.Model != "private":
		return true
	case t.saves == carriedCut:
		for _, s := range t.seats {
			if files, _ := filepath.Glob(filepath.Join(t.carried(), fmt.Sprintf("rank-%d", s.rank), "*.model")); len(files) == 0 {
				return false
			}
		}
		return true
	}
	all, err := manifest.Find(manifest.OS{}, t.checkpoints())
	ranks := map[int]bool{}
	for _, one := range all {
		if one.Err == nil {
			ranks[saver(one.Manifest)] = true
		}
	}
	return err == nil && len(ranks) == len(t.seats)
}

// loseState kills all processes and removes the master's state. The job goes on from its checkpoints
// alone.
func (t *trouble) loseState(ctx context.Context) {
	h := t.books.leases(ctx)
	t.mu.Lock() // no process is started meanwhile
	defer t.mu.Unlock()
	if t.allDone() { // no process would be started again
		return
	}
	t.tell("kill everything, and remove the master's state")
	all := []target{{t.master, -1, nil}}
	for k, p := range t.agents {
		all = append(all, target{p, k, nil})
	}
	for _, s := range t.seats {
		all = append(all, target{s.p, s.life.agent, s.life})
	}
	for _, v := range all {
		if v.p.Ended() {
			continue
		}
		v.p.Signal(syscall.SIGKILL)
		t.kills++
		if h.of(v) {
			t.leased++
		}
	}
	if t.server != nil { // its model is lost too
		t.kills++
		t.server.Signal(syscall.SIGKILL)
		<-t.server.Done
	}
	for _, v := range all {
		<-v.p.Done
	}
	if err := os.RemoveAll(filepath.Join(t.dir, "state")); err != nil {
		t.wrong = append(t.wrong, err.Error())
	}
	t.again()
	t.disturbMemory(-1, -1)
	t.unapplied = true
	t.emptied++
}

// keptPins checks that pinned checkpoints are there, whatever retention removed.
func (t *trouble) keptPins(v *Verdict) {
	for _, path := range t.pinned {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			v.say("%s was pinned and is not there any more", path)
		}
	}
}

// keptFew checks each rank whose last process saved at the end of data: apart from pinned checkpoints it
// keeps no more than `keep` says.
func (t *trouble) keptFew(lives []*life, v *Verdict) {
	if t.saves != byCheckpointer {
		return
	}
	all, err := manifest.Find(manifest.OS{}, t.checkpoints())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.say("%v", err)
	}
	count, toTheEnd := map[int]int{}, map[int]bool{}
	for _, one := range all {
		if one.Err == nil && !slices.Contains(t.pinned, one.Path) {
			count[saver(one.Manifest)]++
		}
	}
	last := map[int]int{}
	for _, l := range lives {
		if l.no > last[l.rank] {
			last[l.rank], toTheEnd[l.rank] = l.no, l.done && len(l.saved) > 0
		}
	}
	for rank, n := range count {
		if toTheEnd[rank] && n > t.keeps {
			v.say("rank %d kept %d checkpoints, and keep is %d", rank, n, t.keeps)
		}
	}
}

func saver(m *manifest.Manifest) int {
	if m.Rank != nil {
		return int(*m.Rank)
	}
	return 0
}
