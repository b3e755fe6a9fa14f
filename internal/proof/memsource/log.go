package memsource

import (
	"slices"
	"sync"

	"github.com/headrace/headrace/sources"
)

// Stride is how many offsets a record takes: its own, and the holes up to the next record.
const Stride = 4

// Log has partitions; a partition has segments; a segment has records.
type Log struct {
	name    string
	numbers Numbers

	mu      sync.Mutex // guards the fields below
	parts   []*part
	changed chan struct{} // closed at each change, and replaced by a new channel
	down    error         // every request to the log gets this error; nil: none
	kept    map[sources.PartitionID]sources.Position
	told    map[sources.PartitionID]sources.Position
	begun   map[sources.PartitionID]bool
}

type part struct {
	id   sources.PartitionID
	segs []*segment // in order; their numbers have gaps, as a broker's have
	next int64
	step int64
}

type segment struct {
	id      int64
	records [][]byte
	sealed  bool
	trimmed bool
}

func (s *segment) end() int64 { return int64(len(s.records)) * Stride }

var (
	logsMu sync.Mutex
	logs   = map[string]*Log{}
)

// Numbers says how a log numbers the segments of each partition, as a broker does: with gaps.
type Numbers struct{ First, Step int64 }

// NewLog makes a log that a spec can name. It lives as long as this process.
func NewLog(name string, partitions int) *Log {
	l := New(name, partitions, Numbers{First: 5, Step: 3})
	logsMu.Lock()
	defer logsMu.Unlock()
	logs[name] = l
	return l
}

// New makes a log that no spec can name.
func New(name string, partitions int, n Numbers) *Log {
	l := &Log{name: name, numbers: n, changed: make(chan struct{}), kept: map[sources.PartitionID]sources.Position{},
		told: map[sources.PartitionID]sources.Position{}, begun: map[sources.PartitionID]bool{}}
	for range partitions {
		l.AddPartition()
	}
	return l
}

func named(name string) *Log {
	logsMu.Lock()
	defer logsMu.Unlock()
	return logs[name]
}

func (l *Log) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.changed)
	l.changed = make(chan struct{})
}

// AddPartition adds a partition with an open segment.
func (l *Log) AddPartition() (id sources.PartitionID) {
	l.change(func() {
		id = sources.PartitionID("memory:" + l.name + "/" + string(rune('a'+len(l.parts))))
		p := &part{id: id, next: l.numbers.First, step: l.numbers.Step}
		p.open()
		l.parts = append(l.parts, p)
	})
	return id
}

func (p *part) open() {
	p.segs = append(p.segs, &segment{id: p.next})
	p.next += p.step
}

func (p *part) last() *segment { return p.segs[len(p.segs)-1] }

// Append adds records to a partition's open segment.
func (l *Log) Append(partition int, records ...[]byte) {
	l.change(func() {
		s := l.parts[partition].last()
		s.records = append(s.records, records...)
	})
}

// Roll seals a partition's open segment and begins another.
func (l *Log) Roll(partition int) { l.change(func() { l.parts[partition].roll() }) }

func (p *part) roll() {
	p.last().sealed = true
	p.open()
}

// Trim deletes the oldest sealed segments of a partition. It leaves the newest `keep` segments, and
// those that Retain asked to keep. It gives the number of deleted records.
func (l *Log) Trim(partition, keep int) (records int) {
	l.change(func() {
		p := l.parts[partition]
		held, any := l.kept[p.id]
		for _, s := range p.segs[:max(0, len(p.segs)-keep)] {
			needed := any && held.Compare(sources.Position{Segment: s.id, Offset: s.end()}) < 0 || l.begun[p.id] && !any
			if s.sealed && !s.trimmed && !needed {
				s.trimmed = true
				records += len(s.records)
			}
		}
	})
	return records
}

// Fail makes every request to the log fail with err from now on; nil ends that.
func (l *Log) Fail(err error) { l.change(func() { l.down = err }) }

// Segments counts the segments of a partition that are there, and those that were trimmed.
func (l *Log) Segments(partition int) (there, trimmed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.parts[partition].segs {
		if s.trimmed {
			trimmed++
		} else {
			there++
		}
	}
	return there, trimmed
}

// Committed and Kept are the marks that the log was last given. ok: it was given one.
func (l *Log) Committed(p sources.PartitionID) (at sources.Position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok = l.told[p]
	return at, ok
}

func (l *Log) Kept(p sources.PartitionID) (at sources.Position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok = l.kept[p]
	return at, ok
}

// Begun reports whether Begin was called for a partition: it is then kept from the beginning.
func (l *Log) Begun(p sources.PartitionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun[p]
}

// find gives a partition. The caller holds mu.
func (l *Log) find(id sources.PartitionID) *part {
	i := slices.IndexFunc(l.parts, func(p *part) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return l.parts[i]
}

func (p *part) segment(id int64) *segment {
	i := slices.IndexFunc(p.segs, func(s *segment) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return p.segs[i]
}

// Lose deletes the first n segments, also those that must be retained.
func (l *Log) Lose(partition, n int) {
	l.change(func() {
		for _, s := range l.parts[partition].segs {
			if n > 0 && s.sealed && !s.trimmed {
				s.trimmed, n = true, n-1
			}
		}
	})
}
