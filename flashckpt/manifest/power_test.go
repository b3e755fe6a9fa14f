package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/minio/crc64nvme"
)

// memory is a file system that forgets what was not synced when its power fails.
type memory struct{ vfs.FS }

func (m memory) Mkdir(folder string) error {
	if _, err := m.Stat(folder); err == nil {
		return fs.ErrExist
	}
	if _, err := m.Stat(filepath.Dir(folder)); err != nil {
		return err
	}
	return m.FS.MkdirAll(folder, 0o777)
}

func (m memory) Create(path string) (Writer, error) {
	return m.FS.Create(path, vfs.WriteCategoryUnspecified)
}

// Remove makes the removal of a file in the folder "er" durable at once. A disk may do that, and the
// clone of a crash never does it by itself.
func (m memory) Remove(path string) error {
	err := m.FS.Remove(path)
	if folder := filepath.Dir(path); err == nil && filepath.Base(folder) == "er" {
		return m.SyncDir(folder)
	}
	return err
}

func (m memory) RemoveIn(folder, path string) error { return m.FS.Remove(filepath.Join(folder, path)) }

func (m memory) SyncDir(folder string) error {
	d, err := m.OpenDir(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (m memory) ReadFile(path string) ([]byte, error) {
	f, err := m.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

func (m memory) ReadDir(folder string) (names []Name, err error) {
	all, err := m.List(folder)
	for _, n := range all {
		info, err := m.Stat(filepath.Join(folder, n))
		if err != nil {
			return nil, err
		}
		names = append(names, Name{Name: n, Folder: info.IsDir()})
	}
	return names, err
}

func seed(t *testing.T) uint64 {
	v := uint64(time.Now().UnixNano())
	if e := os.Getenv("HEADRACE_SEED"); e != "" {
		var err error
		if v, err = strconv.ParseUint(e, 10, 64); err != nil {
			t.Fatalf("HEADRACE_SEED: %v", err)
		}
	}
	t.Logf("HEADRACE_SEED=%d", v)
	return v
}

const checkpoints = "/ckpt"

// save writes the checkpoint of a step, in one piece.
func save(on FS, step int64) error { return saveIn(on, checkpoints, step) }

func saveIn(on FS, dir string, step int64) error {
	c := cutOf("replicated", files())
	c.ID, c.Step = cut.ID(step), step
	m := of(c)
	folder, err := Begin(on, dir, Folder(step, nil, c.ID))
	if err != nil {
		return err
	}
	for i := range uint32(6) {
		f, err := WriteFile(on, folder, fmt.Sprintf("model-%d", i), strings.NewReader(content(step, "model", i)))
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	return WriteManifest(on, filepath.Join(folder, FileName), m)
}

// saveSharded writes the checkpoint of a step as the three ranks of a sharded save.
func saveSharded(on FS, step int64) error {
	c := cutOf("replicated", files())
	c.ID, c.Step = cut.ID(step), step
	m := of(c)
	folder, err := Begin(on, checkpoints, Folder(step, nil, c.ID))
	if err != nil {
		return err
	}
	for rank := range m.WorldSize {
		p := &Part{Cut: c.ID, Step: step, Rank: rank, WorldSize: m.WorldSize}
		for _, name := range []string{"model", "deep/er/optimizer"} {
			f, err := WriteFile(on, folder, fmt.Sprintf("%s-%d", name, rank), strings.NewReader(content(step, name, rank)))
			if err != nil {
				return err
			}
			p.Files = append(p.Files, f)
		}
		if err := WritePart(on, folder, p); err != nil {
			return err
		}
	}
	parts, missing, err := Parts(on, folder, c.ID, m.WorldSize)
	if err != nil || len(missing) > 0 {
		return fmt.Errorf("parts %v are missing: %w", missing, err)
	}
	if err := m.Merge(parts); err != nil {
		return err
	}
	return WriteManifest(on, filepath.Join(folder, FileName), m)
}

func content(step int64, name string, rank uint32) string {
	return strings.Repeat(fmt.Sprintf("step %d %s rank %d;", step, name, rank), 50)
}

// steps returns the steps of the checkpoints in the folder. It fails if one of them is not whole.
func steps(t *testing.T, what string, on FS) (steps []int64) {
	t.Helper()
	return stepsIn(t, what, on, checkpoints)
}

func stepsIn(t *testing.T, what string, on FS, dir string) (steps []int64) {
	t.Helper()
	all, err := Find(on, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for i := range all {
		c := &all[i]
		if errors.Is(c.Err, ErrHalf) {
			continue
		}
		if c.Err != nil {
			t.Fatalf("%s: %s: %v", what, c.Path, c.Err)
		}
		if len(c.Manifest.Files) != 6 {
			t.Fatalf("%s: %s names %d files, want 6", what, c.Path, len(c.Manifest.Files))
		}
		for _, f := range c.Manifest.Files {
			b, err := on.ReadFile(filepath.Join(c.Folder(), f.Path))
			if err != nil || int64(len(b)) != f.Size || CRC64(crc64nvme.Checksum(b)) != f.CRC {
				t.Fatalf("%s: %s: file %s is not as the manifest says: it has %d bytes (%v)", what, c.Path, f.Path, len(b), err)
			}
		}
		steps = append(steps, c.Manifest.Step)
	}
	return steps
}

// failing counts the writing calls and cuts the power at call number at. cut gets the files that are
// left then.
func failing(mem *vfs.MemFS, at int, cfg vfs.CrashCloneCfg, calls *int, cut **vfs.MemFS) FS {
	return memory{errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if *calls++; at == 0 || *calls < at {
			return nil
		}
		if *cut == nil {
			*cut = mem.CrashClone(cfg)
		}
		return errorfs.ErrInjected
	}))}
}

// eachCut runs do on a file system whose power fails at its first writing call, at its second, and so
// on. For each call it runs once with everything lost that was not synced, and a few times with a random
// part of that kept.
func eachCut(t *testing.T, before func(FS) error, do func(FS) error, look func(what string, on FS, done bool)) {
	rng := rand.New(rand.NewPCG(seed(t), 1))
	for at := 1; ; at++ {
		for try := range 6 {
			cfg := vfs.CrashCloneCfg{}
			if try > 0 {
				cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 10 + rng.IntN(90), RNG: rng}
			}
			mem := vfs.NewCrashableMem()
			if err := errors.Join(mem.MkdirAll(checkpoints, 0o777), memory{mem}.SyncDir("/"), before(memory{mem})); err != nil {
				t.Fatal(err)
			}
			calls, left := 0, (*vfs.MemFS)(nil)
			err := do(failing(mem, at, cfg, &calls, &left))
			if left == nil {
				if err != nil {
					t.Fatal(err)
				}
				if at < 5 {
					t.Fatalf("do made fewer than %d writing calls, want at least 4: this test does not see all of them", at)
				}
				look("no power failure", memory{mem.CrashClone(vfs.CrashCloneCfg{})}, true)
				return
			}
			look(fmt.Sprintf("power failed at writing call %d, %d%% of the unsynced kept", at, cfg.UnsyncedDataPercent), memory{left}, err == nil)
		}
	}
}

// Guarantee 4: "If a save is killed at any point, the older checkpoints stay. The new one is
// either complete or absent."
func TestPowerLossAtEveryCallLeavesTheOldCheckpointOrTheNewOneWhole(t *testing.T) {
	t.Run("one writer", func(t *testing.T) { testPowerLoss(t, save) })
	t.Run("sharded", func(t *testing.T) { testPowerLoss(t, saveSharded) })
}

func testPowerLoss(t *testing.T, how func(FS, int64) error) {
	eachCut(t,
		func(on FS) error { return save(on, 100) },
		func(on FS) error { return how(on, 130) },
		func(what string, on FS, done bool) {
			switch got := fmt.Sprint(steps(t, what, on)); {
			case got == "[130 100]":
			case got == "[100]" && !done:
			default:
				t.Fatalf("%s: the checkpoints are those of the steps %s; the save succeeded: %v", what, got, done)
			}
		})
}

func TestPowerLossAtEveryCallOfARemovalLeavesTheCheckpointWholeOrGone(t *testing.T) {
	eachCut(t,
		func(on FS) error {
			return errors.Join(saveSharded(on, 100), save(on, 130), SetPin(on, filepath.Join(checkpoints, Folder(100, nil, 100), FileName), Pin{}))
		},
		func(on FS) error {
			all, err := Find(on, checkpoints)
			if err != nil || len(all) != 2 || all[1].Manifest.Step != 100 {
				t.Fatal(all, err)
			}
			return all[1].Delete(on)
		},
		func(what string, on FS, done bool) {
			switch got := fmt.Sprint(steps(t, what, on)); {
			case got == "[130]":
			case got == "[130 100]" && !done:
			default:
				t.Fatalf("%s: the checkpoints are those of the steps %s; the removal succeeded: %v", what, got, done)
			}
			if _, err := on.ReadDir(filepath.Join(checkpoints, Folder(100, nil, 100))); done && err == nil {
				t.Fatalf("%s: the removal succeeded, but the folder is still there", what)
			}
		})
}

func TestPowerLossAtEveryCallOfAPinLeavesItOrNot(t *testing.T) {
	path := filepath.Join(checkpoints, Folder(100, nil, 100), FileName)
	eachCut(t,
		func(on FS) error { return save(on, 100) },
		func(on FS) error {
			return errors.Join(SetPin(on, path, Pin{Reason: "first"}), SetPin(on, path, Pin{Reason: "second"}))
		},
		func(what string, on FS, done bool) {
			all, err := Find(on, checkpoints)
			if err != nil || len(all) != 1 || all[0].Err != nil {
				t.Fatal(what, all, err)
			}
			if pin := all[0].Pin; done && (pin == nil || pin.Reason != "second") || pin != nil && pin.Reason != "first" && pin.Reason != "second" {
				t.Fatalf("%s: the pin is %+v; SetPin succeeded: %v", what, pin, done)
			}
		})
}
