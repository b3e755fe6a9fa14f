package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

func mkfifo(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit is a way to change a file.
var edits = []struct {
	name string
	full bool // only verify: full must see it
	want string
	edit func(name string, old []byte, info os.FileInfo) error
}{
	{"grown", false, "size 400001, was 400000", func(name string, old []byte, _ os.FileInfo) error {
		return os.WriteFile(name, append(old, 'x'), 0o600)
	}},
	{"shrunk", false, "size 399999, was 400000", func(name string, old []byte, _ os.FileInfo) error {
		return os.Truncate(name, int64(len(old)-1))
	}},
	{"touched", false, "modified 2001-09-09T01:46:40Z, was ", func(name string, _ []byte, _ os.FileInfo) error {
		return os.Chtimes(name, time.Time{}, time.Unix(1e9, 0))
	}},
	{"replaced", false, "another file in its place: inode ", func(name string, old []byte, info os.FileInfo) error {
		return errors.Join(os.WriteFile(name+"~", old, 0o600), os.Chtimes(name+"~", time.Time{}, info.ModTime()), os.Rename(name+"~", name))
	}},
	{"rewritten at its beginning, time set back", false, "other content in its first or last 64 KiB", func(name string, old []byte, info os.FileInfo) error {
		return rewrite(name, old, 10, info)
	}},
	{"rewritten at its end, time set back", false, "other content in its first or last 64 KiB", func(name string, old []byte, info os.FileInfo) error {
		return rewrite(name, old, len(old)-10, info)
	}},
	{"rewritten in its middle, time set back", true, "other content", func(name string, old []byte, info os.FileInfo) error {
		return rewrite(name, old, len(old)/2, info)
	}},
}

func rewrite(name string, old []byte, at int, info os.FileInfo) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{old[at] ^ 1}, int64(at))
	return errors.Join(err, f.Close(), os.Chtimes(name, time.Time{}, info.ModTime()))
}

func TestAFileThatChangedAfterItWasPlannedIsToldWithRangeAndFile(t *testing.T) {
	for _, e := range edits {
		for _, verify := range []string{"fast", "full"} {
			t.Run(e.name+" "+verify, func(t *testing.T) {
				dir := tree(t, map[string]string{"day_1": strings.Repeat("0123456\n", 50_000)})
				sp := spec(dir)
				sp.Verify = verify
				s := lineSource(t, Options{Spec: sp})
				segs := sourcetest.Segments(t, s, s.partition, 10)
				if _, err := readRange(t, s, segs[0], 0, segs[0].End); err != nil {
					t.Fatal(err)
				}
				changeFile(t, dir+"/day_1", e.edit)
				_, err := readRange(t, s, segs[0], 100, 200)
				if e.full && verify == "fast" {
					if err != nil {
						t.Errorf("verify: fast looks only at the ends, but returns %v", err)
					}
					return
				}
				var changed *sources.Changed
				if !errors.As(err, &changed) {
					t.Fatalf("got %v", err)
				}
				if changed.Name != "day_1" || changed.Range != (sources.Range{Partition: "files:clicks", Start: 100, End: 200}) || !strings.Contains(changed.What, e.want) {
					t.Errorf("got %+v", changed)
				}
			})
		}
	}
}

func changeFile(t *testing.T, name string, edit func(string, []byte, os.FileInfo) error) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := edit(name, old, info); err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatIsGoneIsToldWithRangeAndFile(t *testing.T) {
	dir := tree(t, map[string]string{"day_1": "a\nb\nc\n"})
	s := lineSource(t, Options{Spec: spec(dir)})
	segs := sourcetest.Segments(t, s, s.partition, 10)
	if err := os.Remove(dir + "/day_1"); err != nil {
		t.Fatal(err)
	}
	_, err := readRange(t, s, segs[0], 2, 4)
	var lost *sources.Truncated
	if !errors.As(err, &lost) || lost.Lost != (sources.Range{Partition: "files:clicks", Start: 2, End: 4}) || lost.Name != "day_1" {
		t.Errorf("got %v", err)
	}
}

// begin opens a range and reads its first batch.
func begin(t *testing.T, s *Source) (sources.Cursor, sources.Segment) {
	t.Helper()
	s.blocks = tinyBlocks
	g := sourcetest.Segments(t, s, s.partition, 10)[0]
	c, err := s.Open(t.Context(), sources.Range{Partition: s.partition, Start: 0, End: g.End}, sources.Position{}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var b sources.Batch
	if err := c.Next(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return c, g
}

func drain(t *testing.T, c sources.Cursor) (n int, err error) {
	var b sources.Batch
	for {
		if err = c.Next(t.Context(), &b); err != nil {
			return n, err
		}
		n += len(b.Recs)
	}
}

func TestAFileThatGrowsWhileItIsReadIsToldAtTheEndOfTheRange(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat("0123456\n", 1000)})
	c, _ := begin(t, lineSource(t, Options{Spec: spec(dir)}))
	changeFile(t, dir+"/f", func(name string, old []byte, _ os.FileInfo) error {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("more\n")
		return errors.Join(err, f.Close())
	})
	n, err := drain(t, c)
	var changed *sources.Changed
	if !errors.As(err, &changed) || !strings.Contains(changed.What, "size 8005, was 8000") || n == 0 {
		t.Errorf("after %d records: %v", n, err)
	}
	if _, again := drain(t, c); again != err {
		t.Errorf("asked again: %v", again)
	}
}

func TestAFileThatShrinksWhileItIsReadIsToldWithWhatIsLost(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat("0123456\n", 1000)})
	c, g := begin(t, lineSource(t, Options{Spec: spec(dir)}))
	if err := os.Truncate(dir+"/f", 4001); err != nil {
		t.Fatal(err)
	}
	_, err := drain(t, c)
	var lost *sources.Truncated
	if !errors.As(err, &lost) || lost.Lost.Start != 4001 || lost.Lost.End != g.End || lost.Name != "f" {
		t.Errorf("got %v", err)
	}
}

func TestAnOpenCursorGoesOnWhenItsFileIsReplacedByAnother(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat("0123456\n", 1000)})
	c, _ := begin(t, lineSource(t, Options{Spec: spec(dir)}))
	if err := os.Remove(dir + "/f"); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t, c); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestAFileIsHashedOnceUntilItIsTouched(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat("0123456\n", 1000)})
	s := lineSource(t, Options{Spec: spec(dir)})
	f, err := s.openFile(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.stamp()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.verified.prints(t.Context(), f, st, true); err != nil {
		t.Fatal(err)
	}
	if d := s.verified.of(st); d.hasPrint || d.hasFull {
		t.Error("the hash of a file that was just changed is kept, although the file may change again in the same instant")
	}
	st.Touched, st.Modified = 1, 1 // as if it had not changed since 1970
	if _, _, err := s.verified.prints(t.Context(), f, st, true); err != nil {
		t.Fatal(err)
	}
	if d := s.verified.of(st); !d.hasPrint || !d.hasFull {
		t.Error("the hash of a file that has not changed for long is not kept")
	}
	st.Touched = 2
	if _, _, err := s.verified.prints(t.Context(), brokenFile(t, f), st, false); err == nil {
		t.Error("a touched file was not hashed")
	}
}

// The clock of the synctest bubble shows the year 2000, so the file's time is in the far future.
func TestAFileIsHashedOnceAlsoWhenTheClockWasSetBack(t *testing.T) {
	dir := tree(t, map[string]string{"f": strings.Repeat("0123456\n", 1000)})
	s := lineSource(t, Options{Spec: spec(dir)})
	f, err := s.openFile(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.stamp()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if time.Until(time.Unix(0, st.Modified)) < 24*time.Hour {
			t.Fatalf("the bubble's clock shows %v", time.Now())
		}
		for look := range 2 {
			if _, _, err := s.verified.prints(t.Context(), f, st, true); err != nil {
				t.Fatal(err)
			}
			if d := s.verified.of(st); d.hasPrint != (look == 1) || d.hasFull != (look == 1) {
				t.Errorf("look %d: %+v", look, d)
			}
			time.Sleep(settledFor + time.Millisecond)
		}
		if _, _, err := s.verified.prints(t.Context(), brokenFile(t, f), st, true); err != nil {
			t.Errorf("a file that has not changed was hashed again: %v", err)
		}
	})
}

// brokenFile returns a file that is closed, so that reading it fails.
func brokenFile(t *testing.T, f file) file {
	t.Helper()
	other, err := os.Open(f.(localFile).Name())
	if err != nil {
		other, err = os.Open(os.DevNull)
	}
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	return localFile{other}
}

func TestHashingAllOfAFileStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := tree(t, map[string]string{"f": strings.Repeat("0123456\n", 1<<19)})
	f, err := os.Open(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reads := 0
	_, err = fullHash(ctx, readerAt(func(b []byte, at int64) (int, error) {
		if reads++; reads == 2 {
			cancel()
		}
		return f.ReadAt(b, at)
	}), 1<<22)
	if !errors.Is(err, context.Canceled) || reads != 2 {
		t.Errorf("%v after %d reads", err, reads)
	}
}

type readerAt func([]byte, int64) (int, error)

func (r readerAt) ReadAt(b []byte, at int64) (int, error) { return r(b, at) }

func TestAShortOfEverythingMachineIsTemporaryAndAMissingFileIsNot(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EMFILE: true, syscall.ESTALE: true, syscall.EIO: true,
		syscall.ENOENT: false, syscall.EACCES: false, errors.New("other"): false,
	} {
		var temporary *sources.Temporary
		got := classify(fmt.Errorf("open: %w", err))
		if errors.As(got, &temporary) != want || !errors.Is(got, err) {
			t.Errorf("%v is classified as %#v", err, got)
		}
	}
}

func TestARecordOverTheLimitIsToldAndThoseBeforeItAreRead(t *testing.T) {
	dir := tree(t, map[string]string{"f": "a\nb\n" + strings.Repeat("x", 101) + "\nc\n"})
	sp := spec(dir)
	sp.MaxRecord = 100
	s := lineSource(t, Options{Spec: sp})
	g := sourcetest.Segments(t, s, s.partition, 10)[0]
	got, err := readRange(t, s, g, 0, g.End)
	var large *sources.TooLarge
	if len(got) != 2 || !errors.As(err, &large) || large.Position.Offset != 4 || large.Name != "f" || large.Limit != 100 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestARecordOfExactlyTheLimitIsRead(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", ""} {
		for _, f := range []Framing{{Kind: Lines}, {Kind: Quoted, Quote: '"', Delimiter: ','}} {
			content := strings.Repeat("x", 1<<20) + end
			s := one(t, []byte(content), f, tinyBlocks)
			g := sourcetest.Segments(t, s, s.partition, 10)[0]
			got, err := readRange(t, s, g, 0, g.End)
			if err != nil || len(got) != 1 || len(got[0].Value) != 1<<20 {
				t.Errorf("%q: %d records, %v", end, len(got), err)
			}
		}
	}
}

// A file of 100 GB, nearly all of it a hole, is opened in its middle. If more than the range were read,
// this would take minutes.
func TestAShardInTheMiddleOfAHundredGigabytesIsOpenedAtOnce(t *testing.T) {
	dir := t.TempDir()
	middle := sparse(t, dir, 100<<30)
	s := lineSource(t, Options{Spec: spec(dir)})
	g := sourcetest.Segments(t, s, s.partition, 1)[0]
	began := time.Now()
	got, err := readRange(t, s, g, middle+5, middle+64)
	if err != nil || len(got) != 3 || !bytes.Equal(got[0].Value, []byte("0123456789abcde")) || got[0].Position.Offset != middle+17 {
		t.Errorf("%v, %v", got, err)
	}
	took := time.Since(began)
	t.Logf("opened and read in %v", took)
	if took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
