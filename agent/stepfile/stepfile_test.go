package stepfile_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/headrace/headrace/agent/stepfile"
	"github.com/headrace/headrace/internal/frame"
)

// vector has the bytes that the Python client has written, and their meaning.
type vector struct {
	File    []byte
	About   stepfile.About
	Durable uint32
	Through uint32
	Step    int64
	Batches []frame.ResumeBatch
}

func vectors(t testing.TB) map[string]vector {
	t.Helper()
	paths, err := filepath.Glob("../../api/vectors/stepfiles/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	all := map[string]vector{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var raw struct {
			File    string
			About   stepfile.About
			Durable uint32
			Through uint32
			Step    int64
			Batches [][3]json.RawMessage
		}
		if err := json.Unmarshal(text, &raw); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		v := vector{About: raw.About, Durable: raw.Durable, Through: raw.Through, Step: raw.Step}
		if v.File, err = base64.StdEncoding.DecodeString(raw.File); err != nil {
			t.Fatal(err)
		}
		v.File = append(v.File, make([]byte, 4096)...) // memory that nobody has written to
		for _, b := range raw.Batches {
			var batch frame.ResumeBatch
			for i, into := range []any{&batch.Number, &batch.Rows, &batch.Spans} {
				if err := json.Unmarshal(b[i], into); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
			}
			if batch.Number <= v.Through {
				batch.Step = &v.Step
			}
			v.Batches = append(v.Batches, batch)
		}
		all[filepath.Base(path)] = v
	}
	return all
}

func TestAStepFileSaysWhatTheClientMeant(t *testing.T) {
	for name, v := range vectors(t) {
		s, err := stepfile.Parse(v.File)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.About.Incarnation != v.About.Incarnation || s.About.Stream != v.About.Stream || s.Dataset != 7 || s.Rank != 3 {
			t.Errorf("%s: the file is about %+v", name, s.About)
		}
		if s.Durable != v.Durable || s.Through != v.Through || s.Step != v.Step && v.Through > 0 || s.Missing != 0 {
			t.Errorf("%s: durable %d, stepped %d at %d, missing %d; want %d, %d at %d, 0", name, s.Durable, s.Through, s.Step, s.Missing, v.Durable, v.Through, v.Step)
		}
		if len(s.Batches) != len(v.Batches) {
			t.Errorf("%s: %d batches, want %d", name, len(s.Batches), len(v.Batches))
			continue
		}
		for i := range s.Batches {
			if !reflect.DeepEqual(s.Batches[i], v.Batches[i]) {
				t.Errorf("%s: batch %+v, want %+v", name, s.Batches[i], v.Batches[i])
			}
		}
	}
}

// A process may be killed in the middle of a write. A mark that is not whole does not count, and a
// frame that is not whole is ignored.
func TestAWriteThatWasTornSaysNothingNew(t *testing.T) {
	v := vectors(t)["stepped.json"]
	for _, pair := range []int{64, 128} { // a pair of marks; in one pair the first mark is the newer one, in the other the second
		for _, mark := range []int{pair, pair + 32} {
			for written := 1; written < 32; written++ {
				torn := append([]byte(nil), v.File...)
				next := binary.LittleEndian.AppendUint64(nil, 1000) // the mark that was being written
				next = binary.LittleEndian.AppendUint64(next, 2)
				next = binary.LittleEndian.AppendUint64(next, 1<<40)
				next = binary.LittleEndian.AppendUint64(next, 1000)
				copy(torn[mark:], next[:written])
				s, err := stepfile.Parse(torn)
				if err != nil {
					t.Fatalf("%d bytes of the mark at %d: %v", written, mark, err)
				}
				if written < 26 && (s.Through > v.Through || s.Durable > v.Durable || s.Step > v.Step) { // 26 bytes are the whole mark: the rest of it is 0
					t.Errorf("%d bytes of a new mark at %d were written, and it counts: durable %d, stepped %d at step %d", written, mark, s.Durable, s.Through, s.Step)
				}
			}
		}
	}
	for at := 256; at < len(v.File)-4096; at++ {
		torn := append([]byte(nil), v.File...)
		torn[at] ^= 0x5a
		s, err := stepfile.Parse(torn)
		if err != nil {
			if !errors.Is(err, stepfile.ErrDamaged) {
				t.Fatalf("byte %d: %v", at, err)
			}
			continue
		}
		for i, b := range s.Batches {
			if !reflect.DeepEqual(b.Spans, v.Batches[i].Spans) {
				t.Errorf("byte %d is damaged, and batch %d is read as %+v", at, b.Number, b.Spans)
			}
		}
	}
}

func TestAFolderIsForItsOwnerAlone(t *testing.T) {
	root := t.TempDir()
	t.Setenv(stepfile.RootVariable, root)
	f, err := stepfile.Open("/run/a.sock", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v (%v)", info.Mode(), err)
	}
	if again, err := stepfile.Open("/run/a.sock", "node-1"); err != nil || again.Path != f.Path {
		t.Errorf("the next agent on the socket has the folder %v (%v), want %s", again, err, f.Path)
	}
	if other, err := stepfile.Open("/run/b.sock", "node-1"); err != nil || other.Path == f.Path {
		t.Errorf("an agent on another socket has the folder %v (%v), want one of its own", other, err)
	}
	if err := os.Chmod(f.Path, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := stepfile.Open("/run/a.sock", "node-1"); err == nil {
		t.Error("a folder that others may read was accepted")
	}
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), f.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := stepfile.Open("/run/a.sock", "node-1"); err == nil {
		t.Error("a symbolic link was accepted as the folder")
	}
}

func TestWhatIsNoStepFileIsLeftAloneAndNoLinkIsFollowed(t *testing.T) {
	t.Setenv(stepfile.RootVariable, t.TempDir())
	f, err := stepfile.Open("/run/a.sock", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	v := vectors(t)["stepped.json"]
	name := filepath.Join(f.Path, "00c0ffee00c0ffee-2")
	for path, content := range map[string][]byte{
		name: v.File,
		filepath.Join(f.Path, "00c0ffee00c0ffee-3"):     v.File, // its content is of stream 2
		filepath.Join(f.Path, "notes"):                  []byte("x"),
		filepath.Join(f.Path, "00c0ffee00c0ffee-2.new"): v.File,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(name, filepath.Join(f.Path, "00c0ffee00c0ffee-4")); err != nil {
		t.Fatal(err)
	}
	files, err := f.List()
	if err != nil || len(files) != 3 {
		t.Fatalf("the folder lists %v (%v), want 3 files", files, err)
	}
	for _, file := range files {
		s, err := file.Read()
		if file.Stream == 2 && (err != nil || s.Through != v.Through) {
			t.Errorf("%s: %+v, %v", file.Path, s, err)
		}
		if file.Stream != 2 && err == nil {
			t.Errorf("%s was read", file.Path)
		}
	}
	if ended, err := files[0].Ended(); err != nil || !ended {
		t.Errorf("no process has the file open, but Ended says %v (%v)", ended, err)
	}
}
