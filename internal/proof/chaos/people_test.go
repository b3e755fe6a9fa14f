package chaos

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// crewOf has the sample's folder as its checkpoints.
func crewOf(s *sample) *crew {
	return &crew{o: Options{Model: "private"}, dir: filepath.Dir(filepath.Dir(s.folder)), inputs: []*input{s.in}, choices: choices{saves: byCheckpointer, keeps: 1}}
}

func TestAPinnedCheckpointThatIsGoneIsSeen(t *testing.T) {
	there := filepath.Join(t.TempDir(), manifest.FileName)
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var v Verdict
	(&trouble{pinned: []string{there}}).keptPins(&v)
	if len(v.Wrong) != 0 {
		t.Errorf("%+v", v)
	}
	(&trouble{pinned: []string{there + "-not"}}).keptPins(&v)
	if len(v.Wrong) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestMoreCheckpointsThanWereToBeKeptAreSeen(t *testing.T) {
	s := newSample(t)
	root := filepath.Join(filepath.Dir(s.folder), "checkpoints")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		s.folder = filepath.Join(root, name)
		s.judged(t, weighed([]*input{s.in}, ofCut()))
	}
	c := crewOf(s)
	toTheEnd := &life{no: 1, done: true, saved: []saved{{cut: 7}}}
	for _, x := range []struct {
		name   string
		pinned []string
		life   *life
		wrong  int
	}{
		{"one too many", nil, toTheEnd, 1},
		{"one of them is pinned", []string{filepath.Join(root, "a", manifest.FileName)}, toTheEnd, 0},
		{"a killed process removes no more checkpoints", nil, &life{no: 1, saved: []saved{{cut: 7}}}, 0},
	} {
		var v Verdict
		(&trouble{crew: c, pinned: x.pinned}).keptFew([]*life{x.life}, &v)
		if len(v.Wrong) != x.wrong {
			t.Errorf("%s: %+v", x.name, v)
		}
	}
}

func TestACutInATrainersOwnFileIsCompared(t *testing.T) {
	s := newSample(t)
	c := crewOf(s)
	c.dir = t.TempDir()
	folder := filepath.Join(c.carried(), "rank-0")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	body, err := s.m.Cut.EncodeJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, seen := range map[string][]uint8{"00000001.model": ofCut(), "00000002.model": make([]uint8, 100)} {
		text := safetensors(weighed([]*input{s.in}, seen))
		n := binary.LittleEndian.Uint64(text)
		meta, err := json.Marshal(string(body))
		if err != nil {
			t.Fatal(err)
		}
		head := fmt.Sprintf(`{"__metadata__":{"text":%s},%s`, meta, text[9:8+n])
		text = append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), text[8+n:]...)
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var v Verdict
	var all Saves
	found := map[cut.ID]kept{}
	if err := c.checkCarried(found, &v, &all); err != nil {
		t.Fatal(err)
	}
	if v.Lost != 60 || v.Twice != 0 || all.Carried != 2 || len(v.Wrong) != 1 || !strings.Contains(v.Wrong[0], "00000002") || found[s.m.Cut.ID].cut == nil {
		t.Errorf("%+v %+v", v, all)
	}
}

func TestAModelThatIsRestoredHoldsItsCheckpointAndWhatCameAfterIt(t *testing.T) {
	since := func(first, number int, server int) *batch {
		b := two(number, first, int64(10*number))
		b.server = server
		return b
	}
	base, cut := []uint8{1, 1, 0, 0, 0, 0}, map[key]bool{0: true, 1: true}
	for _, x := range []struct {
		name        string
		batches     []*batch
		lost, twice int
	}{
		{"the rest was applied after the restore", []*batch{since(0, 1, 1), since(2, 2, 1), since(2, 3, 2), since(4, 4, 2)}, 0, 0},
		{"applications to the dead server do not count", []*batch{since(0, 1, 1), since(2, 2, 1), since(4, 3, 2)}, 2, 0},
		{"records of the checkpoint were applied again", []*batch{since(0, 1, 2), since(2, 2, 2), since(4, 3, 2)}, 0, 2},
	} {
		var v Verdict
		v.judgeShared(small(false), []*life{well(0, x.batches...)}, []span{{server: 1, over: true}, {server: 2, base: base, cut: cut}}, excuses{})
		if v.Lost != x.lost || v.Twice != x.twice {
			t.Errorf("%s: %+v", x.name, v)
		}
	}
}

func TestAnotherBatchInAStepIsSeen(t *testing.T) {
	want := map[turn]int64{{1, 0}: 5, {1, 1}: 6}
	for _, x := range []struct {
		name  string
		lives []*life
		wrong int
	}{
		{"the same batches, one read twice", []*life{{hashes: want}, {hashes: map[turn]int64{{1, 1}: 6}}}, 0},
		{"another", []*life{{hashes: want}, {hashes: map[turn]int64{{1, 1}: 7}}}, 1},
		{"one batch was never read", []*life{{hashes: map[turn]int64{{1, 0}: 5}}}, 1},
		{"one batch too many", []*life{{hashes: map[turn]int64{{1, 0}: 5, {1, 1}: 6, {2, 0}: 1}}}, 2},
	} {
		var v Verdict
		v.judgeSteps(x.lives, want)
		if len(v.Wrong) != x.wrong {
			t.Errorf("%s: %+v", x.name, v)
		}
	}
}
