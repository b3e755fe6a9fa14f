package chaos

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// input is one dataset and the truth about it. Each pass has the records [0, records), ordered
// by id. A record carries its id and a check value computed from the id.
type input struct {
	name    string
	format  string // lines | tsv | csv | json
	records int
	passes  int
	strict  bool
	shuffle bool
	root    string             // of the files
	drops   bool               // only full rounds are read; the rows left at the end are dropped
	dropped int64              // how many units the master has dropped at the end
	virtual int                // virtual ranks of bit_exact; 0: no bit_exact
	mu      sync.Mutex         // guards the fields below while records are still written
	written int                // how many records have a known place
	places  map[string][]place // where each record begins, by file name or by the queue's name for the segment
	// For a topic, which has the input's name:
	queue      queue // nil: files
	partitions int
	live       bool    // the topic is written while it is read, and has no end
	rows       [][]int // ids in each partition, in order
	requests   [2]int  // requests begun, and requests ended: the places of their records are known
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
	in.partitions = 1
	if !in.strict { // a strict input has one partition, so that the ids are its order
		in.partitions += r.IntN(4)
	}
	return in
}

// setExact turns `order: strict` off: the virtual ranks decide the order.
func (in *input) setExact(virtual int) { in.virtual, in.strict = virtual, false }

// setDrops turns `order: strict` off: a rank without a partition would never get a full batch.
func (in *input) setDrops() { in.drops, in.strict = true, false }

// setLive: an input without an end has one pass and is not shuffled.
func (in *input) setLive() { in.live, in.passes, in.shuffle = true, 1, false }

func (in *input) String() string {
	s := fmt.Sprintf("%s: %d records of %s, %d passes", in.name, in.records, in.format, in.passes)
	if in.strict {
		s += ", strict"
	}
	if in.shuffle {
		s += ", shuffled"
	}
	if in.drops {
		s += ", in full rounds"
	}
	if in.virtual > 0 {
		s += fmt.Sprintf(", bit_exact with %d virtual ranks", in.virtual)
	}
	if in.queue != nil {
		s += fmt.Sprintf(", a topic of %d partitions", in.partitions)
		if in.live {
			s += " that is being written"
		}
	}
	return s
}

// check is the value beside the id. mix in trainer/sums.py computes the same.
func check(id uint64) int64 {
	z := id * 0x9E3779B97F4A7C15
	return int64((z ^ z>>29) >> 1)
}

// write writes the input as three files of unequal size, one of them empty.
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
		w, at := bufio.NewWriter(f), int64(0)
		for ; id < end; id++ {
			var text bytes.Buffer
			in.record(&text, r, id)
			in.put(filepath.Base(f.Name()), at, id)
			at += int64(text.Len())
			_, _ = w.Write(text.Bytes()) // Flush returns the error
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

// place is where a record begins.
type place struct {
	at int64
	id int
}

func (in *input) put(segment string, at int64, id int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.places == nil {
		in.places = map[string][]place{}
	}
	in.places[segment] = append(in.places[segment], place{at, id})
	in.written++
}

// placesOf gives the places in a segment that are known now.
func (in *input) placesOf(segment string) []place {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.places[segment]
}

// putIn does what put does, for the next record of a partition.
func (in *input) putIn(partition int, segment string, at int64, id int) {
	in.put(segment, at, id)
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.rows) <= partition {
		in.rows = append(in.rows, nil)
	}
	in.rows[partition] = append(in.rows[partition], id)
}

// rowsOf gives the ids in a partition whose places are known now.
func (in *input) rowsOf(partition int) []int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if partition >= len(in.rows) {
		return nil
	}
	return in.rows[partition]
}

func (in *input) sending() { in.count(0) }
func (in *input) sent()    { in.count(1) }

func (in *input) count(which int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.requests[which]++
}

// placed waits until the places of all records that were sent so far are known.
func (in *input) placed(ctx context.Context) error {
	in.mu.Lock()
	begun := in.requests[0]
	in.mu.Unlock()
	for {
		in.mu.Lock()
		ended := in.requests[1]
		in.mu.Unlock()
		if ended >= begun {
			return nil
		}
		if err := until(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// group is the consumer group, or subscription, in which the master commits progress to the broker.
func (in *input) group() string { return "headrace-" + in.name }

func (in *input) record(w io.Writer, r *rand.Rand, id int) {
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
	block := "8KiB"
	_, _ = fmt.Fprintf(&b, "name: %s\npasses: %d\n", in.name, in.passes)
	if in.queue != nil {
		lease := ""
		lease, block = in.queue.sizes()
		_, _ = fmt.Fprintf(&b, "%s\nlease: {target: 300ms, %s}\n", in.queue.source(in), lease)
	} else {
		_, _ = fmt.Fprintf(&b, "files: {root: %q}\nlease: {target: 300ms, initial: 4KiB, min: 1KiB}\n", in.root)
	}
	if in.strict {
		b.WriteString("order: strict\n")
	}
	if in.shuffle {
		_, _ = fmt.Fprintf(&b, "shuffle: {seed: 7, block: %s}\n", block)
	}
	if in.virtual > 0 {
		_, _ = fmt.Fprintf(&b, "bit_exact: {virtual_ranks: %d, block: %s}\n", in.virtual, block)
	}
	paths := map[string][2]string{"tsv": {"0", "2"}, "csv": {"0", "2"}, "json": {"/id", "/check"}}
	if p, ok := paths[in.format]; ok {
		_, _ = fmt.Fprintf(&b, "decode:\n  format: %s\n  columns:\n    - {name: id, path: %q, dtype: int64}\n    - {name: check, path: %q, dtype: int64}\n", in.format, p[0], p[1])
	} else {
		b.WriteString("decode: lines\n")
	}
	return b.String()
}
