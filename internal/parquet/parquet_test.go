package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// The files of testdata are pyarrow's: the table of test_parquet.py in the Python package,
// 300 rows. That test compares the values; here the same file is read in other ways.

func testFiles(t testing.TB) map[string][]byte {
	names, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	files := map[string][]byte{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(n)] = b
	}
	return files
}

func paths(texts ...string) []Path {
	var all []Path
	for _, text := range texts {
		p := Path{Text: text}
		for _, token := range strings.Split(text[1:], "/") {
			p.Tokens, p.Stars = append(p.Tokens, token), append(p.Stars, token == "*")
		}
		all = append(all, p)
	}
	return all
}

var everyPath = paths("/id", "/small", "/big", "/x", "/y", "/half", "/flag", "/word", "/long", "/fixed", "/price", "/wide", "/when", "/day",
	"/tags/*", "/nums/*", "/deep/a/b", "/items/*/k", "/items/*/v", "/map/*/key", "/map/*/value", "/matrix/*/*", "/absent")

// rowsOf writes each row as text, whatever its coding.
func rowsOf(cols []sources.Column, n int) []string {
	rows := make([]string, n)
	for _, c := range cols {
		value, slot := 0, 0
		for i := range rows {
			end := slot + 1
			if c.List {
				end = int(c.Ends[i])
			}
			rows[i] += c.Path + "="
			for ; slot < end && !c.Absent; slot++ {
				if len(c.Valid) > 0 && c.Valid[slot] == 0 {
					rows[i] += "null,"
					continue
				}
				rows[i] += fmt.Sprintf("%x,", valueOf(&c, value))
				value++
			}
			rows[i] += ";"
		}
	}
	return rows
}

func valueOf(c *sources.Column, k int) []byte {
	values, offsets := c.Values, c.Offsets
	if c.Dict != nil {
		values, offsets, k = c.Dict.Values, c.Dict.Offsets, c.Entry(k)
	}
	if size := c.Kind.Size(); size > 0 {
		return values[size*k : size*(k+1)]
	}
	return values[offsets[k]:offsets[k+1]]
}

// readRows reads the rows [from, to) of a group, about step at a time.
func readRows(b []byte, f *File, group int, from, to int64, step func() int) ([]string, error) {
	rd, err := f.Read(bytes.NewReader(b), group, everyPath)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	rd.Bound(1<<20, patience(3000))
	if err := rd.Skip(from); err != nil {
		return nil, err
	}
	cols := make([]sources.Column, len(everyPath))
	var rows []string
	for rd.Row() < to {
		n, err := rd.Next(rd.Batch(int(min(int64(step()), to-rd.Row()))), cols)
		if err != nil {
			return rows, err
		}
		rows = append(rows, rowsOf(cols, n)...)
	}
	return rows, nil
}

func TestAnyRunOfRowsIsTheSameRows(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	var all [][]string
	for name, b := range testFiles(t) {
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(name, err)
		}
		if f.Rows != 300 || len(f.Groups) != 3 {
			t.Fatalf("%s: %d rows in %d groups", name, f.Rows, len(f.Groups))
		}
		var rows []string
		for g := range f.Groups {
			n := f.Groups[g].Rows
			whole, err := readRows(b, f, g, 0, n, func() int { return int(n) })
			if err != nil {
				t.Fatal(name, err)
			}
			rows = append(rows, whole...)
			for range 40 {
				from := rng.Int64N(n + 1)
				to := from + rng.Int64N(n-from+1)
				got, err := readRows(b, f, g, from, to, func() int { return 1 + rng.IntN(30) })
				if err != nil || strings.Join(got, "\n") != strings.Join(whole[from:to], "\n") {
					t.Fatalf("%s, group %d, rows [%d, %d): they differ, %v", name, g, from, to, err)
				}
			}
		}
		all = append(all, rows)
	}
	for i := range all {
		if strings.Join(all[i], "\n") != strings.Join(all[0], "\n") {
			t.Error("the same table, written in two ways, has other rows")
		}
	}
}

// readDamaged reads all of a file that may be damaged.
func readDamaged(b []byte) error {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	rows := int64(0)
	for g := range f.Groups {
		// A damaged footer may claim any number of rows, so this reads at most 5,000 of a group.
		n := min(f.Groups[g].Rows, 5000)
		got, err := readRows(b, f, g, 0, n, func() int { return 100 })
		if rows += int64(len(got)); err != nil {
			return err
		}
		if rows > 20_000 {
			return nil
		}
	}
	return nil
}

func TestDamagedFilesGiveRowsOrErrors(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	files := testFiles(t)
	crc, failed := 0, 0
	for name, b := range files {
		for i := range 100 {
			c := bytes.Clone(b)
			for range 1 + rng.IntN(3) {
				switch at := rng.IntN(len(c)); rng.IntN(4) {
				case 0:
					c[at] ^= 1 << rng.IntN(8)
				case 1:
					c[at] = 0xFF
				case 2:
					c[at] = byte(rng.Uint32())
				case 3:
					c = c[:at+1]
				}
			}
			err := readDamaged(c)
			if i%10 == 0 {
				boundsHold(t, c)
			}
			if err != nil {
				failed++
				if strings.Contains(err.Error(), "CRC") {
					crc++
				}
				if strings.Contains(err.Error(), "runtime error") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if failed == 0 || crc == 0 {
		t.Errorf("%d errors, %d of them by CRC; want some of both", failed, crc)
	}
}

func TestWhatIsNotSupportedIsSaid(t *testing.T) {
	b := testFiles(t)["default.parquet"]
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/tags":     "is a list; write /tags/*",
		"/deep":     "is a group of fields",
		"/id/*":     "is no list",
		"/items/k":  "write a * for its elements",
		"/map/*":    "is a group of fields",
		"/nums/*/*": "is no list",
		"/matrix/*": "is a list; write /matrix/*/*",
		"/deep/*/b": "is no list",
	} {
		if _, err := f.Read(bytes.NewReader(b), 0, paths(path)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	for _, path := range []string{"/tags/*/x", "/deep/a/b/c"} {
		if _, err := f.root.find(paths(path)[0]); !errors.Is(err, errAbsent) {
			t.Errorf("%s: %v, want that it is absent", path, err)
		}
	}
	encryptedFile := append(bytes.Clone(b[:len(b)-4]), "PARE"...)
	if _, err := Open(bytes.NewReader(encryptedFile), int64(len(b))); !errors.Is(err, ErrEncrypted) {
		t.Errorf("a file that ends with PARE: %v, want %v", err, ErrEncrypted)
	}
	for codec, want := range map[int32]string{3: "LZO", 5: "LZ4 (the old form)", 99: "99"} {
		if err := checkCodec(codec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("codec %d: %v, want an error that names %s", codec, err, want)
		}
	}
	failing := io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)-10))
	if _, err := Open(failing, int64(len(b))); err == nil {
		t.Error("a file that is shorter than its size is read")
	}
}

func FuzzFile(f *testing.F) {
	for _, b := range testFiles(f) {
		f.Add(b)
	}
	for name, b := range hostile() {
		if !strings.Contains(name, "nulls") && !strings.Contains(name, "list") { // reading those to the end takes seconds
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := readDamaged(b); err != nil && strings.Contains(err.Error(), "runtime error") {
			t.Fatal(err)
		}
		boundsHold(t, b)
	})
}

// testdata/empty/make.py says how these files were made.
func TestARowGroupWithoutRowsNeedsNoData(t *testing.T) {
	for name, group := range map[string]int{"all": 0, "first": 0, "between": 1, "last": 1} {
		b, err := os.ReadFile("testdata/empty/" + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(name, err)
		}
		rd, err := f.Read(bytes.NewReader(b), group, paths("/id", "/tags/*", "/absent"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := rd.Skip(0); err != nil || rd.Left() != 0 {
			t.Errorf("%s: %d rows left, %v", name, rd.Left(), err)
		}
		rd.Close()
		if _, err := f.Read(bytes.NewReader(b), group, paths("/tags")); err == nil || !strings.Contains(err.Error(), "is a list") {
			t.Errorf("%s: a list is read as a value: %v", name, err)
		}
	}
}
