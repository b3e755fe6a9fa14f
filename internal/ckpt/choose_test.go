package ckpt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/ckpt/ckpttest"
	"github.com/headrace/headrace/shardsvc/cut"
)

// kept is a ledger that keeps a cut for each path, by its step.
func kept(paths map[int64]string, newest int64, states map[int64]string) *Ledger {
	reply := &headracev1.CutsReply{Job: "default"}
	for step, path := range paths {
		state := states[step]
		if state == "" {
			state = "bound"
		}
		reply.Cuts = append(reply.Cuts, &headracev1.CutState{Cut: uint64(step)<<16 | 1, State: state, Newest: step == newest, Step: step, Path: path, Rank: -1})
	}
	return NewLedger(reply)
}

func saved(t *testing.T, steps ...int64) (dir string, paths map[int64]string) {
	t.Helper()
	dir, paths = t.TempDir(), map[int64]string{}
	for _, step := range steps {
		paths[step] = filepath.Join(ckpttest.Save(t, dir, step, 1, step, ckpttest.Unchanged), manifest.FileName)
	}
	return filepath.Join(dir, "ckpt"), paths
}

// staying returns the steps that stay, with their reasons, and the steps that are removed.
func staying(all Chosen) (stay map[int64]string, going []int64) {
	stay = map[int64]string{}
	for _, v := range all.Views(true) {
		if v.Removed {
			going = append(going, v.Step)
		} else {
			stay[v.Step] = v.Reason
		}
	}
	slices.Sort(going)
	return stay, going
}

func TestTheNewestBoundCheckpointStays(t *testing.T) {
	_, paths := saved(t, 100, 200, 300)
	// The ledger has not bound the checkpoint of step 300: a restore begins with 200.
	r := &Removal{On: local, Ledger: kept(map[int64]string{100: paths[100], 200: paths[200]}, 200, nil)}
	all, err := r.Choose(t.Context(), []string{paths[100], paths[200], paths[300]})
	if err != nil {
		t.Fatal(err)
	}
	stay, going := staying(all)
	if !slices.Equal(going, []int64{100}) || stay[200] != "it is the newest that is bound" || stay[300] != "it is the newest that verifies" || all.Going() != 1 {
		t.Errorf("stay %v, going %v", stay, going)
	}
}

func TestAVoidedCheckpointIsNotAmongTheNewestThatAreKept(t *testing.T) {
	dir, paths := saved(t, 100, 200, 300)
	r := &Removal{On: local, Keep: 1, Ledger: kept(paths, 200, map[int64]string{300: "voided"})}
	all, err := r.Choose(t.Context(), []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if stay, going := staying(all); !slices.Equal(going, []int64{100, 300}) || len(stay) != 0 {
		t.Errorf("stay %v, going %v", stay, going)
	}
}

func TestACutWithoutFilesIsForgottenByItsID(t *testing.T) {
	_, paths := saved(t, 100)
	r := &Removal{On: local, Ledger: kept(map[int64]string{100: paths[100], 50: "/ckpt/is/gone", 200: "/this/too"}, 200, nil)}
	all, err := r.Choose(t.Context(), []string{"0000000000320001", "0000000000c80001"})
	if err != nil {
		t.Fatal(err)
	}
	stay, going := staying(all)
	if !slices.Equal(going, []int64{50}) || !strings.Contains(stay[200], "a restore must be able to say that its files are gone") {
		t.Errorf("stay %v, going %v", stay, going)
	}
	var forgotten []cut.ID
	if err := all.Remove(t.Context(), local, func(id cut.ID) error { forgotten = append(forgotten, id); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(forgotten, []cut.ID{0x320001}) {
		t.Errorf("forgot %v", forgotten)
	}
}

func TestFilesStayWhereTheLedgerDidNotForget(t *testing.T) {
	_, paths := saved(t, 100, 200)
	all, err := (&Removal{On: local}).Choose(t.Context(), []string{paths[100]})
	if err != nil {
		t.Fatal(err)
	}
	down := advice.Unreachable.Wrap("start it", errors.New("no master answers"))
	err = all.Remove(t.Context(), local, func(cut.ID) error { return down })
	if !errors.Is(err, down) || !strings.Contains(err.Error(), "was not removed") {
		t.Error(err)
	}
	if _, err := os.Stat(paths[100]); err != nil {
		t.Error(err)
	}
}

func TestAMasterForgetsOnlyItsOwnJobsCheckpoints(t *testing.T) {
	_, paths := saved(t, 100, 200)
	all, err := (&Removal{On: local}).Choose(t.Context(), []string{paths[100]})
	if err != nil {
		t.Fatal(err)
	}
	if err := all.OwnedBy("default", "here"); err != nil {
		t.Error(err)
	}
	e, ok := errors.AsType[*advice.Error](all.OwnedBy("ctr", "here"))
	if !ok || e.Kind != advice.Usage || !strings.Contains(e.Error(), "is of job default, the master at here runs ctr") {
		t.Error(e)
	}
}
