package demo

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/demo/report"
)

// watch reads the journals while they are written: progress that needs no master.
type watch struct {
	dir     string
	total   int
	readers map[string]*report.Reader
	applied [trainers]int // rows by rank, all incarnations
	rates   [trainers]float64
	changed time.Time // when a row was last applied

	before [trainers]int
	at     time.Time
}

func newWatch(dir string, total int) *watch {
	return &watch{dir: dir, total: total, readers: map[string]*report.Reader{}, changed: time.Now(), at: time.Now()}
}

func (w *watch) close() {
	for _, r := range w.readers {
		_ = r.Close()
	}
}

// look reads what is new and returns the number of rows applied so far.
func (w *watch) look() (int, error) {
	paths, err := filepath.Glob(filepath.Join(w.dir, "*.journal"))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		if err := w.follow(path); err != nil {
			return 0, err
		}
	}
	if age := time.Since(w.at); age > time.Second {
		for k := range w.rates {
			w.rates[k] = float64(w.applied[k]-w.before[k]) / age.Seconds()
		}
		w.before, w.at = w.applied, time.Now()
	}
	sum := 0
	for _, n := range w.applied {
		sum += n
	}
	return sum, nil
}

func (w *watch) follow(path string) error {
	var rank, life int
	if _, err := fmt.Sscanf(filepath.Base(path), journalName, &rank, &life); err != nil || rank < 0 || rank >= trainers {
		return fmt.Errorf("%s is not a journal of ours", path)
	}
	r, ok := w.readers[path]
	if !ok {
		var err error
		if r, err = report.OpenJournal(path); err != nil {
			return err
		}
		w.readers[path] = r
	}
	for {
		e, err := r.Next()
		if err == io.EOF || errors.Is(err, report.ErrTorn) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Kind == report.Applied {
			w.applied[rank] += e.Rows
			w.changed = time.Now()
		}
	}
}

func (w *watch) line() string {
	sum := 0
	var b strings.Builder
	for k, n := range w.applied {
		sum += n
		fmt.Fprintf(&b, "  t%d %5.1fk/s", k, w.rates[k]/1000)
	}
	const width = 20
	full := min(width*sum/max(w.total, 1), width)
	return fmt.Sprintf("%s%s %3d %% of %s%s", strings.Repeat("#", full), strings.Repeat(".", width-full),
		100*sum/max(w.total, 1), report.Thousands(w.total), b.String())
}
