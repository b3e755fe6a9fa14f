package clicklog

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
)

// Options say which log to write, and where.
type Options struct {
	LogDir   string // the files that are read: day_0.tsv ..
	TruthDir string // the truth about them: manifest.json, day_0.truth ..
	Records  int    // at least Files
	Seed     uint64
	// Progress, if set, is called with the number of records written so far, from
	// several goroutines.
	Progress func(records int64)
}

// Files is the number of files of a log. The drift begins with file Files/2.
const Files = 8

// Manifest describes a log that was written.
type Manifest struct {
	Seed    uint64 `json:"seed"`
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
	Drift   int    `json:"drift"` // number of the first record after the drift
	Files   []File `json:"files"`
	Topic   *Topic `json:"topic,omitempty"` // the topic, if there is one
}

// File is one file of the log. Its first record has the number First.
type File struct {
	Name    string `json:"name"`
	First   int    `json:"first"`
	Records int    `json:"records"`
	Bytes   int64  `json:"bytes"`
}

// EstimatedBytes is the space on disk of a log of n records and its truth.
func EstimatedBytes(n int) int64 { return int64(n) * 310 }

// Write writes the log, on all cores. It stops early when ctx ends.
func Write(ctx context.Context, o Options) (*Manifest, error) {
	if o.Records < Files {
		return nil, fmt.Errorf("a click log has at least %d records, got %d", Files, o.Records)
	}
	for _, dir := range []string{o.LogDir, o.TruthDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	m := &Manifest{Seed: o.Seed, Records: o.Records}
	for f := range Files {
		first, next := f*o.Records/Files, (f+1)*o.Records/Files
		m.Files = append(m.Files, File{Name: fmt.Sprintf("day_%d.tsv", f), First: first, Records: next - first})
	}
	m.Drift = m.Files[Files/2].First

	w := newWorld(o.Seed)
	var done, turn atomic.Int64
	errs := make([]error, Files)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), Files) {
		wg.Go(func() {
			for f := turn.Add(1) - 1; f < Files; f = turn.Add(1) - 1 {
				errs[f] = writeFile(ctx, o, w, m, int(f), &done)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("writing the click log: %w", err)
	}
	for _, f := range m.Files {
		m.Bytes += f.Bytes
	}
	return m, m.write(o.TruthDir)
}

func (m *Manifest) write(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestName), text, 0o644)
}

const manifestName = "manifest.json"

func truthName(f File) string { return f.Name + ".truth" }

func writeFile(ctx context.Context, o Options, w *world, m *Manifest, number int, done *atomic.Int64) (err error) {
	f := &m.Files[number]
	log, err := os.Create(filepath.Join(o.LogDir, f.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	file, err := os.Create(filepath.Join(o.TruthDir, truthName(*f)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	truth := bufio.NewWriterSize(file, 1<<20)

	phase := 0
	if number >= Files/2 {
		phase = 1
	}
	b := newBlock()
	var entry [truthEntry]byte
	for at := 0; at < f.Records && ctx.Err() == nil; at += blockRows {
		n := min(blockRows, f.Records-at)
		b.fill(w, random(splitmix(o.Seed+uint64(number)<<40+uint64(at))), n, phase)
		for i, start := range b.starts {
			binary.LittleEndian.PutUint64(entry[0:], uint64(f.Bytes+start))
			binary.LittleEndian.PutUint64(entry[8:], b.checks[i])
			entry[16] = b.labels[i]
			if _, err := truth.Write(entry[:]); err != nil {
				return err
			}
		}
		if _, err := log.Write(b.text); err != nil {
			return err
		}
		f.Bytes += int64(len(b.text))
		total := done.Add(int64(n))
		if o.Progress != nil {
			o.Progress(total)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return truth.Flush()
}
