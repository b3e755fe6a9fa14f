package files

import (
	"context"
	"encoding/binary"
	"sort"

	"github.com/cespare/xxhash/v2"
)

// In a folder that grows each name is read once. If a file is written to after that, or
// comes again under its old name, its new content is not read, and the log says so once.

// mark tells one state of a file from another: a hash of its size and time, or of its tag.
type mark uint64

const (
	unlisted mark = iota // not known before the file is listed
	told                 // the file has changed, and the log said so
	firstMark
)

func markOf(size, modified int64, tag string) mark {
	sum := xxhash.Sum64String(tag)
	if tag == "" {
		sum = xxhash.Sum64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(size)), uint64(modified)))
	}
	return max(mark(sum), firstMark)
}

// again says which of the names that were read are looked at again.
type again struct {
	after string // the last look came up to this name
	told  int    // lines in the log
}

const (
	// againMost is how many files of this machine one look checks again. There is no such limit
	// for objects, because each page of names has their state.
	againMost = 1000
	toldMost  = 100
)

// someAgain looks again at some files that were read; the next look goes on after them.
func (l *look) someAgain(ctx context.Context, names []string) {
	g := &l.s.list.growing
	from := sort.Search(len(names), func(i int) bool { return names[i] > g.again.after })
	for i := range min(againMost, len(names)) {
		if ctx.Err() != nil {
			return
		}
		name := names[(from+i)%len(names)]
		g.again.after = name
		l.replaced(name, func() (sighting, error) { return l.s.see(ctx, name) })
	}
}

// replaced logs if a file has changed since it was read.
func (l *look) replaced(name string, as func() (sighting, error)) {
	g := &l.s.list.growing
	was, known := g.taken[name]
	if !known {
		return
	}
	now, err := as()
	if err != nil {
		return // a file that was read may also be gone
	}
	if came := l.s.cameOf(now); came > was.time {
		if was.time == 0 {
			g.newest = max(g.newest, came)
		}
		was.time = came
		g.taken[name] = was
	}
	if was.mark < firstMark || was.mark == markOf(now.size, now.modified.UnixNano(), now.tag) {
		return
	}
	was.mark = told
	g.taken[name] = was
	if g.again.told++; g.again.told < toldMost {
		l.s.log.Warn("a file has changed after it was listed, or another one has its name; each name is read once, so its new content is not read: "+
			"put it there again under a new name", "file", name)
	} else if g.again.told == toldMost {
		l.s.log.Warn("more files have changed after they were listed; they are not named any more", "file", name)
	}
}
