package chaos

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// input is one dataset and the truth about it: the records [0, records) in each
// of its passes, in this order of ids. A record carries its id and a check of it.
type input struct {
	name    string
	format  string // lines | tsv | csv | json
	records int
	passes  int
	strict  bool
	shuffle bool
	root    string
}

var formats = []string{"lines", "tsv", "csv", "json"}

func newInput(r *rand.Rand, k, records int, root string) *input {
	in := &input{
		name: fmt.Sprintf("chaos-%d", k), format: formats[r.IntN(len(formats))],
		records: records, passes: 1 + r.IntN(3)/2, root: filepath.Join(root, fmt.Sprintf("data-%d", k)),
	}
	switch r.IntN(4) {
	case 0:
		in.strict = true
	case 1:
		in.shuffle = true
	}
	return in
}

func (in *input) String() string {
	s := fmt.Sprintf("%s: %d records of %s, %d passes", in.name, in.records, in.format, in.passes)
	if in.strict {
		s += ", strict"
	}
	if in.shuffle {
		s += ", shuffled"
	}
	return s
}

// check is the value beside id; trainer.py's mix.
func check(id uint64) int64 {
	z := id * 0x9E3779B97F4A7C15
	return int64((z ^ z>>29) >> 1)
}

// write makes the files: three of unequal size, an empty one among them.
func (in *input) write(r *rand.Rand) error {
	if err := os.MkdirAll(in.root, 0o700); err != nil {
		return err
	}
	a, b := in.records/7, in.records/7+in.records/3
	id := 0
	for part, end := range []int{a, a, b, in.records} {
		f, err := os.Create(filepath.Join(in.root, fmt.Sprintf("part-%d.%s", part, in.format)))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(f)
		for ; id < end; id++ {
			in.record(w, r, id)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (in *input) record(w *bufio.Writer, r *rand.Rand, id int) {
	pad := strings.Repeat("x", r.IntN(40))
	c := check(uint64(id))
	switch in.format {
	case "lines":
		_, _ = fmt.Fprintf(w, "%d;%d;%s\n", id, c, pad)
	case "tsv":
		_, _ = fmt.Fprintf(w, "%d\t%s\t%d\n", id, pad, c)
	case "csv":
		if r.IntN(3) == 0 {
			pad = "\"a, \"\"quoted\"\"\nline " + pad + "\""
		}
		_, _ = fmt.Fprintf(w, "%d,%s,%d\r\n", id, pad, c)
	case "json":
		_, _ = fmt.Fprintf(w, "{\"s\":\"%s\\n\",\"id\":%d,\"check\":%d}\n", pad, id, c)
	}
}

func (in *input) yaml() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "name: %s\nfiles: {root: %q}\npasses: %d\nlease: {target: 300ms, initial: 4KiB, min: 1KiB}\n", in.name, in.root, in.passes)
	if in.strict {
		b.WriteString("order: strict\n")
	}
	if in.shuffle {
		b.WriteString("shuffle: {seed: 7, block: 8KiB}\n")
	}
	paths := map[string][2]string{"tsv": {"0", "2"}, "csv": {"0", "2"}, "json": {"/id", "/check"}}
	if p, ok := paths[in.format]; ok {
		_, _ = fmt.Fprintf(&b, "decode:\n  format: %s\n  columns:\n    - {name: id, path: %q, dtype: int64}\n    - {name: check, path: %q, dtype: int64}\n", in.format, p[0], p[1])
	} else {
		b.WriteString("decode: lines\n")
	}
	return b.String()
}
