package demo

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

// watch reads the journals while they are written: progress that does not need the master.
type watch struct {
	dir      string
	truth    *clicklog.Truth
	journals map[string]*watched
	in       []bool // which records are in the model
	distinct int    // how many of them

	applied [trainers]int // rows by rank, in all its processes
	rates   [trainers]float64
	changed time.Time // when a row was last applied

	before [trainers]int
	at     time.Time
}

type watched struct {
	*report.Follower
	rank    int
	batches int // how many of its batches are counted
}

func newWatch(dir string, truth *clicklog.Truth) *watch {
	return &watch{dir: dir, truth: truth, journals: map[string]*watched{}, in: make([]bool, truth.Records), changed: time.Now(), at: time.Now()}
}

func (w *watch) close() {
	for _, j := range w.journals {
		_ = j.Close()
	}
}

// look reads what is new.
func (w *watch) look() error {
	paths, err := filepath.Glob(filepath.Join(w.dir, "*.journal"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := w.follow(path); err != nil {
			return err
		}
	}
	if age := time.Since(w.at); age > time.Second {
		for k := range w.rates {
			w.rates[k] = float64(w.applied[k]-w.before[k]) / age.Seconds()
		}
		w.before, w.at = w.applied, time.Now()
	}
	return nil
}

func (w *watch) follow(path string) error {
	j, ok := w.journals[path]
	if !ok {
		var rank, life int
		if _, err := fmt.Sscanf(filepath.Base(path), journalName, &rank, &life); err != nil || rank < 0 || rank >= trainers {
			return fmt.Errorf("%s is not named like a trainer's journal", path)
		}
		f, err := report.Follow(path, w.truth)
		if err != nil {
			return err
		}
		j = &watched{Follower: f, rank: rank}
		w.journals[path] = j
	}
	if err := j.More(); err != nil {
		return err
	}
	for ; j.batches < len(j.Batches) && j.Batches[j.batches].Applied != 0; j.batches++ {
		b := j.Batches[j.batches]
		w.applied[j.rank] += len(b.Records)
		w.changed = time.Now()
		for _, n := range b.Records {
			if n >= 0 && !w.in[n] {
				w.in[n] = true
				w.distinct++
			}
		}
	}
	return nil
}

// share is the share of records that are in the model.
func (w *watch) share() float64 { return float64(w.distinct) / float64(w.truth.Records) }

// all reports whether all records are in the model.
func (w *watch) all() bool { return w.distinct == w.truth.Records }

// line is the progress line. On a narrow terminal its end is cut off.
func (w *watch) line(besides string) string {
	var b strings.Builder
	for k := range w.applied {
		fmt.Fprintf(&b, "  t%d %5.1fk/s", k, w.rates[k]/1000)
	}
	return fmt.Sprintf("%s %3.0f %% of %s%s%s", bar(w.share()), 100*w.share(), report.Thousands(w.truth.Records), besides, b.String())
}

func bar(share float64) string {
	const width = 20
	full := min(int(width*share), width)
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}
