package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/shardsvc/cut"
)

// made writes a checkpoint onto this machine's disk and returns its manifest's path.
func made(t *testing.T, dir string, change func(*Manifest), contents ...string) string {
	t.Helper()
	m := of(cutOf("replicated", files()))
	change(m)
	m.Cut.Step = m.Step
	if m.Rank != nil {
		m.Cut.Rank, m.Model, m.Cut.Model = cut.Rank(*m.Rank), "private", "private"
	}
	folder, err := Begin(OS{}, dir, Folder(m.Step, m.Rank, m.Cut.ID))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range contents {
		f, err := WriteFile(OS{}, folder, fmt.Sprintf("part/%d", i), strings.NewReader(c))
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, f)
	}
	path := filepath.Join(folder, FileName)
	if err := WriteManifest(OS{}, path, m); err != nil {
		t.Fatal(err)
	}
	return path
}

func at130(id cut.ID, epoch uint32, step int64) func(*Manifest) {
	return func(m *Manifest) { m.Cut.ID, m.Cut.Epoch, m.Step = id, epoch, step }
}

func found(t *testing.T, path string) []Checkpoint {
	t.Helper()
	all, err := Find(OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheNewestIsTheHighestEpochThenTheHighestStep(t *testing.T) {
	dir := t.TempDir()
	made(t, dir, at130(1, 1, 900))
	made(t, dir, at130(2, 2, 100))
	made(t, dir, at130(3, 2, 700))
	made(t, dir, at130(4, 1, 1000))
	if err := os.Mkdir(filepath.Join(dir, Folder(990, nil, 5)), 0o755); err != nil { // as a killed save leaves it
		t.Fatal(err)
	}
	damaged := made(t, dir, at130(6, 9, 2000))
	if err := os.Truncate(damaged, 100); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "logs"), 0o755), os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range found(t, dir) {
		switch {
		case errors.Is(c.Err, ErrHalf):
			got = append(got, "half")
		case errors.Is(c.Err, ErrDamaged):
			got = append(got, "damaged")
		case c.Err != nil:
			t.Error(c.Err)
		default:
			got = append(got, fmt.Sprintf("%d/%d", c.Manifest.Cut.Epoch, c.Manifest.Step))
		}
	}
	if want := []string{"2/700", "2/100", "1/1000", "1/900", "damaged", "half"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A master that has lost its state begins with epoch 1 again, and a trainer that starts over
// begins with step 0. The order numbers of their cuts still grow.
func TestTheNewestIsTheOneThatWasFrozenLastWhateverItsEpochAndStep(t *testing.T) {
	dir := t.TempDir()
	for i, at := range [][2]uint64{{1, 900}, {3, 1000}, {1, 10}, {1, 5}} {
		made(t, dir, func(m *Manifest) {
			at130(cut.ID(i+1), uint32(at[0]), int64(at[1]))(m)
			m.Cut.Order = uint64(i + 1)
		})
	}
	made(t, dir, at130(9, 7, 2000)) // as an older version writes it, without an order number
	all := found(t, dir)
	var got []int64
	for i := range all {
		got = append(got, all[i].Manifest.Step)
	}
	if want := []int64{5, 10, 1000, 900, 2000}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if order := HighestOrder(OS{}, &all[2]); order != 4 {
		t.Errorf("the highest order in the folder of one checkpoint is %d, want 4", order)
	}
}

func TestTheNewestOfASharedModelIsTheOneThatWasWrittenLast(t *testing.T) {
	dir := t.TempDir()
	at := func(id cut.ID, step int64, minutes time.Duration) func(*Manifest) {
		return func(m *Manifest) {
			m.Model, m.Cut.Model, m.Cut.Exact = "shared", "shared", false
			m.Cut.ID, m.Step, m.Created = id, step, m.Created.Add(minutes*time.Minute)
		}
	}
	made(t, dir, at(1, 50, 0))
	made(t, dir, at(2, 10, 1)) // the saver was started again and counts from 0
	made(t, dir, at(3, 20, 2))
	var got []int64
	for _, c := range found(t, dir) {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		got = append(got, c.Manifest.Step)
	}
	if want := []int64{20, 10, 50}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAClockThatWasSetBackMakesNoCheckpointOlder(t *testing.T) {
	for _, model := range []string{"shared", "private"} {
		dir := t.TempDir()
		for n := range uint64(4) {
			made(t, dir, func(m *Manifest) {
				m.Model, m.Cut.Model, m.Cut.Exact, m.Cut.ID = model, model, model != "shared", cut.ID(n+1)
				if model == "private" {
					m.Rank, m.Cut.Rank = rankOf(0), 0
				}
				m.Created = m.Created.Add(-time.Duration(n) * time.Hour)
				if n > 0 { // the first one is of an older version, which has no order number
					m.Cut.Order = n
				}
			})
		}
		all := found(t, dir)
		for i := range all {
			if want := cut.ID(4 - i); all[i].Manifest.Cut.ID != want {
				t.Errorf("%s: place %d, newest first, has cut %v, want %v", model, i, all[i].Manifest.Cut.ID, want)
			}
		}
		stay := Stay(all, func(i int) bool { return true }, func(*Checkpoint) bool { return true })
		if len(stay) != 1 || stay[0] == "" {
			t.Errorf("%s: the checkpoints %v stay, want only the one that was frozen last", model, stay)
		}
	}
}

func TestAManifestBesideAFileOfAFrameworkIsFound(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model-130.pt"), []byte("123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model-130.pt."+FileName)
	if err := WriteManifest(OS{}, path, of(cutOf("replicated"), File{Path: "model-130.pt", Size: 9, CRC: 0xae8b14860a799888})); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{dir, path, filepath.Dir(dir)} {
		all := found(t, where)
		if len(all) != 1 || all[0].Err != nil || all[0].Path != path {
			t.Fatalf("in %s the checkpoints %+v were found, want the manifest beside the file", where, all)
		}
	}
	all := found(t, path)
	if faults, err := Verify(t.Context(), all[0].Folder(), all[0].Manifest, Verifying{}); err != nil || len(faults) > 0 {
		t.Error(faults, err)
	}
	if err := all[0].Delete(OS{}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

func TestWhatIsNotThereIsSaidSo(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "gone"), filepath.Join(dir, FileName)} {
		if _, err := Find(OS{}, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Find of %s, which does not exist, got %v", path, err)
		}
	}
}

func TestAFifoInPlaceOfAManifestKeepsNobodyWaiting(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, FileName), 0o600); err != nil {
		t.Fatal(err)
	}
	if all := found(t, dir); len(all) != 1 || all[0].Err == nil {
		t.Errorf("a fifo in place of a manifest was found as %+v, want one checkpoint with an error", all)
	}
}

func TestVerifyNamesEveryFileThatIsNotWhatTheManifestSays(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	path := made(t, dir, func(*Manifest) {}, "whole", big, big, "shorter", "gone", "longer", "a link out", "a folder", "")
	folder := filepath.Dir(path)
	in := func(n int) string { return filepath.Join(folder, "part", fmt.Sprint(n)) }
	flipped := []byte(big)
	flipped[1<<20] ^= 1
	outside := filepath.Join(dir, "outside")
	if err := errors.Join(
		os.WriteFile(in(2), flipped, 0o644),
		os.WriteFile(in(3), []byte("short"), 0o644),
		os.Remove(in(4)),
		os.WriteFile(in(5), []byte("longer!"), 0o644),
		os.WriteFile(outside, []byte("a link out"), 0o644), os.Remove(in(6)), os.Symlink(outside, in(6)),
		os.Remove(in(7)), os.Mkdir(in(7), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	m := found(t, path)[0].Manifest
	var last atomic.Int64
	faults, err := Verify(t.Context(), folder, m, Verifying{Workers: 3, Progress: func(p Progress) {
		if p.Of != 2*int64(len(big))+int64(len("wholeshortergonelongera link outa folder")) {
			t.Errorf("the progress is of %d bytes, want the bytes of all files", p.Of)
		}
		last.Store(max(last.Load(), p.Bytes))
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"part/2: its checksum is", "part/3: it has 5 bytes, its manifest says 7", "part/4: no such file", "part/5: it has 7 bytes, its manifest says 6", "part/6: path escapes", "part/7: "} {
		if i >= len(faults) || !strings.HasPrefix(faults[i].Error(), want) {
			t.Errorf("fault %d of %d must begin with %q; the faults are %v", i, len(faults), want, faults)
			break
		}
	}
	if len(faults) != 6 {
		t.Errorf("%d faults, want 6: %v", len(faults), faults)
	}
	if last.Load() < 2*int64(len(big)) {
		t.Errorf("the progress ended at %d bytes, want at least those of the two big files", last.Load())
	}
	// A check of the sizes alone does not see the flipped bit.
	if faults, err := Verify(t.Context(), folder, m, Verifying{Sizes: true}); err != nil || len(faults) != 5 {
		t.Error(faults, err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Verify(stopped, folder, m, Verifying{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTheNewestThatVerifiesAPinnedOneAndWhatTheyNeedStay(t *testing.T) {
	dir := t.TempDir()
	needs := func(id cut.ID, step int64, ids ...cut.ID) func(*Manifest) {
		return func(m *Manifest) { m.Cut.ID, m.Step, m.Needs = id, step, ids }
	}
	base := made(t, dir, needs(1, 100), "base")
	free := made(t, dir, needs(2, 200), "free")
	pinned := made(t, dir, needs(3, 300), "pinned")
	delta := made(t, dir, needs(4, 400, 1), "delta")
	verifies := made(t, dir, needs(5, 500, 4), "verifies")
	broken := made(t, dir, needs(6, 600), "broken")
	newer := made(t, dir, needs(7, 700), "newer")
	if err := SetPin(OS{}, pinned, Pin{Reason: "for the paper"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(newer)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(newer, bytes.Replace(text, []byte(`"version":1`), []byte(`"version":2`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(broken), "part/0"), []byte("Broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	all := found(t, dir)
	var looked []int64
	stay := Stay(all, func(int) bool { return true }, func(c *Checkpoint) bool {
		looked = append(looked, c.Manifest.Step)
		faults, err := Verify(t.Context(), c.Folder(), c.Manifest, Verifying{})
		return err == nil && len(faults) == 0
	})
	got := map[string]string{}
	for i, why := range stay {
		got[all[i].Path] = why
	}
	want := map[string]string{
		newer: "a newer version wrote it", verifies: "it is the newest that verifies", delta: "step 500 needs it: " + verifies,
		base: "step 400 needs it: " + delta, pinned: "it is pinned: for the paper",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("these checkpoints stay:\n%v\nwant:\n%v", got, want)
	}
	if _, stays := got[free]; stays {
		t.Error("a checkpoint that nothing needs stays")
	}
	if !slices.Equal(looked, []int64{600, 500}) {
		t.Errorf("the files of the steps %v were read, want only 600 and 500", looked)
	}
	if err := Unpin(OS{}, pinned); err != nil {
		t.Fatal(err)
	}
	if found(t, pinned)[0].Pin != nil {
		t.Error("the pin is still there after Unpin")
	}
}

// unreadable is a disk, or a bucket, from which one file cannot be read now.
type unreadable struct {
	FS
	path string
}

func (u unreadable) ReadFile(path string) ([]byte, error) {
	if path == u.path {
		return nil, &os.PathError{Op: "read", Path: path, Err: syscall.EIO}
	}
	return u.FS.ReadFile(path)
}

// The checkpoint of step 200 needs that of step 100.
func TestWhatACheckpointThatCannotBeReadMayNeedStays(t *testing.T) {
	dir := t.TempDir()
	step := func(id cut.ID, needs ...cut.ID) func(*Manifest) {
		return func(m *Manifest) { m.Cut.ID, m.Step, m.Needs, m.Cut.Order = id, 100*int64(id), needs, uint64(id) }
	}
	base := made(t, dir, step(1), "base")
	delta := made(t, dir, step(2, 1), "delta")
	free := made(t, dir, step(3), "free")
	newest := made(t, dir, step(4), "newest")
	stays := func(on FS, remove string) map[string]string {
		all, err := Find(on, dir)
		if err != nil || len(all) != 4 {
			t.Fatal(len(all), err)
		}
		got := map[string]string{}
		for i, why := range Stay(all, func(i int) bool { return remove == "all" || all[i].Path == remove }, func(*Checkpoint) bool { return true }) {
			got[all[i].Path] = why
		}
		return got
	}
	same := func(why string, got, want map[string]string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: these checkpoints stay:\n%v\nwant:\n%v", why, got, want)
		}
	}
	same("all can be read", stays(OS{}, "all"), map[string]string{newest: "it is the newest that verifies"})

	mayNeed := delta + " may need it, and cannot be read now: read " + delta + ": input/output error"
	unread := map[string]string{newest: "it is the newest that verifies", base: mayNeed, free: mayNeed,
		delta: "it cannot be read now, so it may be pinned: read " + delta + ": input/output error"}
	same("its manifest cannot be read", stays(unreadable{OS{}, delta}, "all"), unread)
	got := stays(unreadable{OS{}, PinPath(delta)}, "all")
	if len(got) != 4 || got[base] == "" || got[delta] == "" {
		t.Errorf("its pin cannot be read, and these checkpoints stay: %v, want all", got)
	}

	text, err := os.ReadFile(delta)
	if err != nil {
		t.Fatal(err)
	}
	newer := func(old, new string) {
		t.Helper()
		b := bytes.Replace(bytes.Replace(text, []byte(`"version":1`), []byte(`"version":2`), 1), []byte(old), []byte(new), 1)
		if err := os.WriteFile(delta, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	newer("", "")
	same("a newer version wrote it", stays(OS{}, "all"), map[string]string{newest: "it is the newest that verifies",
		delta: "a newer version wrote it", base: "a checkpoint of a newer version needs it: " + delta})
	newer(`"needs":["0000000000000001"]`, `"needs":"0000000000000001"`)
	if got := stays(OS{}, "all"); len(got) != 4 {
		t.Errorf("a newer version wrote what it needs in an unknown way, and these checkpoints stay: %v, want all", got)
	}
}

func TestEachRankOfAPrivateModelKeepsItsNewest(t *testing.T) {
	dir := t.TempDir()
	for i, step := range []int64{100, 200, 300} {
		made(t, dir, func(m *Manifest) { m.Cut.ID, m.Step, m.Rank = cut.ID(i+1), step, rankOf(uint32(i%2)) }, "x")
	}
	all := found(t, dir)
	stay := Stay(all, func(int) bool { return true }, func(*Checkpoint) bool { return true })
	if len(stay) != 2 || stay[0] != "it is the newest that verifies of rank 0" || stay[1] != "it is the newest that verifies of rank 1" {
		t.Errorf("the checkpoints %v stay, want the newest of each rank", stay)
	}
}

func TestATouchedPinPins(t *testing.T) {
	path := made(t, t.TempDir(), func(*Manifest) {})
	if err := os.WriteFile(PinPath(path), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if c := found(t, path)[0]; c.Pin == nil || c.Err != nil {
		t.Errorf("an empty pin file was made, but the checkpoint is %+v, want pinned", c)
	}
}

func TestDeleteLeavesWhatIsNotTheCheckpoints(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "checkpoint-130") // a framework's own folder
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	m := of(cutOf("replicated"))
	for _, name := range []string{"a/b/c", "d"} {
		f, err := WriteFile(OS{}, other, name, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, f)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(other, "a/notes.txt"), nil, 0o644),
		WriteManifest(OS{}, filepath.Join(other, FileName), m)); err != nil {
		t.Fatal(err)
	}
	own := made(t, dir, at130(5, 1, 100), "x")
	if err := os.Symlink(other, filepath.Join(filepath.Dir(own), "link")); err != nil {
		t.Fatal(err)
	}
	all := found(t, dir)
	for i := range all {
		if err := all[i].Delete(OS{}); err != nil {
			t.Fatal(err)
		}
		if all[i].Manifest.Step == 100 { // its link was removed and not followed
			if _, err := os.Stat(filepath.Join(other, "a/notes.txt")); err != nil {
				t.Error(err)
			}
		}
	}
	var left []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			left = append(left, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(left, []string{filepath.Join(other, "a/notes.txt")}) {
		t.Errorf("after the removal these files are left: %v, want only notes.txt", left)
	}
}

func TestDeleteDoesNotFollowALinkOutOfTheFolder(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	precious := filepath.Join(outside, "precious")
	m := of(cutOf("replicated"), File{Path: "data/precious", Size: 1})
	if err := errors.Join(os.WriteFile(precious, []byte("x"), 0o644), os.Symlink(outside, filepath.Join(dir, "data")),
		WriteManifest(OS{}, filepath.Join(dir, FileName), m)); err != nil {
		t.Fatal(err)
	}
	c := found(t, dir)[0]
	if err := c.Delete(OS{}); err == nil {
		t.Error("Delete followed a link that leads out of the folder, and returned no error")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestAShardedSaveIsWholeWhenAllPartsOfTheAttemptAreThere(t *testing.T) {
	dir := t.TempDir()
	part := func(rank uint32, cut cut.ID) error {
		return WritePart(OS{}, dir, &Part{Cut: cut, Step: 130, Rank: rank, WorldSize: 3, Files: []File{{Path: fmt.Sprint("m", rank), Size: 1}}})
	}
	if err := errors.Join(part(0, 7), part(2, 6)); err != nil {
		t.Fatal(err)
	}
	_, missing, err := Parts(OS{}, dir, 7, 3)
	if err != nil || !slices.Equal(missing, []uint32{1, 2}) {
		t.Errorf("missing are the parts %v (%v), want 1 and 2, because the part 2 that is there is of another attempt", missing, err)
	}
	if err := errors.Join(part(1, 7), part(2, 7)); err != nil {
		t.Fatal(err)
	}
	parts, missing, err := Parts(OS{}, dir, 7, 3)
	if err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	m := of(cutOf("replicated"))
	if err := m.Merge(parts); err == nil {
		t.Error("parts of another cut were accepted")
	}
	m.Cut.ID, m.Files = 7, nil
	if err := m.Merge(parts[:2]); err == nil {
		t.Error("two parts of three were accepted")
	}
	if err := m.Merge(parts); err != nil {
		t.Fatal(err)
	}
	if len(m.Files) != 3 || m.Files[2].Path != "m2" || *m.Files[2].Rank != 2 {
		t.Errorf("the merged manifest has the files %+v, want one of each rank", m.Files)
	}
	if err := os.Truncate(filepath.Join(dir, PartName(1)), 10); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Parts(OS{}, dir, 7, 3); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), PartName(1)) {
		t.Error(err)
	}
}

// closed is a disk with folders that this user may not open.
type closed struct {
	OS
	folders []string
}

func (c closed) ReadDir(folder string) ([]Name, error) {
	if slices.Contains(c.folders, filepath.Base(folder)) {
		return nil, &fs.PathError{Op: "open", Path: folder, Err: fs.ErrPermission}
	}
	return c.OS.ReadDir(folder)
}

func TestAFolderThatMayNotBeOpenedHidesNoOtherCheckpoint(t *testing.T) {
	dir := t.TempDir()
	made(t, dir, at130(1, 1, 900))
	other := filepath.Base(filepath.Dir(made(t, dir, at130(2, 1, 800))))
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	all, err := Find(closed{folders: []string{"lost+found", other}}, dir)
	if err != nil || len(all) != 2 || all[0].Err != nil || !errors.Is(all[1].Err, fs.ErrPermission) || all[1].Folder() != filepath.Join(dir, other) {
		t.Errorf("found were %+v (%v), want the readable checkpoint, then the other one with its error", all, err)
	}
	if _, err := Find(closed{folders: []string{filepath.Base(dir)}}, dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Find in a folder that cannot be read got %v", err)
	}
}
