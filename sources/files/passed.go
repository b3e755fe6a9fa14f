package files

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/headrace/headrace/sources"
)

// passed says since when segments lie below the retain mark, from which on data is needed. The
// ledger knows only the present mark, so samples of it are kept in a file. That file may be
// deleted at any time: then time begins anew, and files stay longer.
type passed struct {
	file   string // "": samples are in memory only
	loaded bool
	at     []sample // in order of time and of segment
}

// sample: at Time, all segments up to Segment lay below the mark.
type sample struct {
	Time    int64  `json:"time"` // ns since 1970
	Segment int64  `json:"segment"`
	Locator uint64 `json:"locator"` // XXH64 of the segment's locator; it differs in another listing
}

// reset forgets what is stored.
func (p *passed) reset() {
	p.at, p.loaded = nil, true
	if p.file != "" {
		_ = os.Remove(p.file)
	}
}

// note adds a sample: the first end segments lie below the mark now. An error means that the
// samples are not stored.
func (p *passed) note(now, retain int64, segs []sources.Segment, end int) error {
	if !p.loaded {
		p.load()
	}
	last := end - 1
	for last >= 0 && len(segs[last].Locator) == 0 {
		last--
	}
	// Samples of another listing, and those above a mark that went back, are dropped. If the
	// clock was ahead when a sample was noted, its time becomes now.
	p.at = slices.DeleteFunc(p.at, func(a sample) bool {
		i, known := slices.BinarySearchFunc(segs, a.Segment, func(g sources.Segment, id int64) int {
			return sources.Position{Segment: g.ID}.Compare(sources.Position{Segment: id})
		})
		return !known || i > last || sum(segs[i]) != a.Locator
	})
	for i := range p.at {
		p.at[i].Time = min(p.at[i].Time, now)
	}
	if last < 0 {
		return nil
	}
	n := len(p.at)
	if n > 0 && (p.at[n-1].Segment >= segs[last].ID || now-p.at[n-1].Time < retain/samplesMost) {
		return nil
	}
	p.at = append(p.at, sample{now, segs[last].ID, sum(segs[last])})
	for len(p.at) > 1 && now-p.at[1].Time >= retain { // the second one is old enough, so the first one is not needed
		p.at = p.at[1:]
	}
	return p.store()
}

func sum(g sources.Segment) uint64 { return xxhash.Sum64(g.Locator) }

// since returns since when a segment has been below the mark, as far as is known.
func (p *passed) since(segment int64) int64 {
	for _, a := range p.at {
		if a.Segment >= segment {
			return a.Time
		}
	}
	return math.MaxInt64
}

// load reads the samples that an earlier process has stored. If it cannot, there are none.
func (p *passed) load() {
	p.loaded = true
	if p.file == "" {
		return
	}
	text, err := os.ReadFile(p.file)
	if err != nil || json.Unmarshal(text, &p.at) != nil ||
		!slices.IsSortedFunc(p.at, func(a, b sample) int {
			return sources.Position{Segment: a.Segment, Offset: a.Time}.Compare(sources.Position{Segment: b.Segment, Offset: b.Time})
		}) {
		p.at = nil
	}
}

// store replaces the file. After a power failure it may be empty.
func (p *passed) store() error {
	if p.file == "" {
		return nil
	}
	text, err := json.Marshal(p.at)
	if err != nil {
		return err
	}
	folder := filepath.Dir(p.file)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), p.file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
