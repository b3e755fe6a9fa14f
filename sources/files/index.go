package files

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/headrace/headrace/sources"
)

// index finds the segment of c that begins at c.at: its end, and starts of
// records in it. Reading goes on from there with the next call.
func (s *Source) index(ctx context.Context, c *openList) (starts []int64, end int64, err error) {
	x := indexer{
		framer: framer{framing: s.framing},
		blocks: s.blocks, chunk: c.at, starts: []int64{c.at},
		size: c.data.Size(),
	}
	room := scanRoom(s.blocks.scan)
	defer scanRooms.Put(room)
	buf := (*room)[:s.blocks.scan]
	for at := c.at; at < x.size; { // at: a record begins here
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		n := min(int64(len(buf)), x.size-at)
		k, err := s.readListed(c, buf[:n], at)
		if err != nil {
			return nil, 0, err
		}
		if n, x.size = int64(k), c.data.Size(); n == 0 {
			break // the read before ended exactly with the compressed content
		}
		used, state := x.scan(buf[:n], at)
		if x.end > 0 {
			return x.starts, x.end, nil
		}
		if state == damaged && used == 0 {
			return nil, 0, &sources.Malformed{Position: sources.Position{Segment: s.nextID(), Offset: at}, Name: c.name, What: x.wrong}
		}
		if used == 0 {
			end, err := s.tooLong(ctx, c, at, n, state, at+n == x.size)
			if err != nil {
				return nil, 0, err
			}
			if end == 0 {
				buf = make([]byte, 2*len(buf))
				continue
			}
			if at = end; at >= x.due() && x.border(at) {
				return x.starts, x.end, nil
			}
		}
		at += int64(used)
	}
	return x.starts, x.size, nil
}

// scanRooms has buffers for listing. There may be a hundred thousand small files, and making a
// buffer for each of them took most of the time.
var scanRooms sync.Pool // of *[]byte

// scanRoom gives a buffer of at least size bytes.
func scanRoom(size int64) *[]byte {
	if b, ok := scanRooms.Get().(*[]byte); ok && int64(len(*b)) >= size {
		return b
	}
	b := make([]byte, size)
	return &b
}

// tooLong judges a record that does not end in the n bytes from at. If the record is over the
// limit and listing finds its end, listing skips it: the reader reports it. end is 0 if the
// record may still be within the limit.
func (s *Source) tooLong(ctx context.Context, c *openList, at, n int64, st state, last bool) (end int64, err error) {
	limit := int64(s.spec.MaxRecord)
	where := sources.Position{Segment: s.nextID(), Offset: at}
	if n <= limit+lineEndings {
		if last && (st == inQuotes || s.framing.measured()) {
			return 0, &sources.Malformed{Position: where, Name: c.name, What: s.framing.unfinished()}
		}
		return 0, nil
	}
	read := func(b []byte, at int64) (int, error) {
		return s.readListed(c, b[:max(0, min(int64(len(b)), c.data.Size()-at))], at)
	}
	o, err := s.over(ctx, at, read)
	if err == nil && o.end > 0 {
		var k int
		if k, err = read(make([]byte, 1), o.end-1); k == 1 { // the content has its last byte
			return o.end, err
		}
	}
	if err != nil {
		return 0, err
	}
	return 0, &sources.TooLarge{Partition: s.partition, Position: where, Name: c.name, Size: max(n, o.size), Limit: limit}
}

// readListed reads of a file that is listed just now. It gives less than b only at the
// end of a compressed file's content.
func (s *Source) readListed(c *openList, b []byte, at int64) (int, error) {
	n, err := readFull(c.data, b, at)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, errShort):
		return n, s.contentError(c.name, err)
	case c.loc.Codec != noCodec:
		return n, nil
	}
	return n, s.fileError(c.name, &sources.Temporary{Err: err, Backoff: retryAfter})
}

func (s *Source) nextID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.segments); n > 0 {
		return s.segments[n-1].ID + 1
	}
	return 0
}

type indexer struct {
	framer
	blocks
	chunk  int64 // the segment's start
	starts []int64
	size   int64
	end    int64 // of the segment, when found
}

// scan walks over the records of buf, which begins at offset base with a
// record, and returns the bytes of those that are complete.
func (x *indexer) scan(buf []byte, base int64) (used int, st state) {
	x.reset()
	if x.framing.measured() {
		return x.scanMeasured(buf, base)
	}
	for used < len(buf) {
		// Up to the next quote every line end is a border: find the first that is
		// far enough to be noted, else pass them all at once.
		plain := buf[:x.quote(buf, used)]
		if far := max(int64(used), x.due()-1-base); far < int64(len(plain)) {
			if nl := bytes.IndexByte(plain[far:], '\n'); nl >= 0 {
				used = int(far) + nl + 1
				if x.border(base + int64(used)) {
					return used, complete
				}
				continue
			}
		}
		if nl := bytes.LastIndexByte(plain[used:], '\n'); nl >= 0 {
			used += nl + 1
			continue
		}
		_, next, state := x.record(buf, used, base+int64(len(buf)) == x.size)
		if state != complete {
			return used, state
		}
		if used = next; base+int64(used) >= x.due() && x.border(base+int64(used)) {
			return used, complete
		}
	}
	return used, complete
}

// scanMeasured is scan for records with a length.
func (x *indexer) scanMeasured(buf []byte, base int64) (used int, st state) {
	for used < len(buf) {
		_, next, state := x.record(buf, used, false)
		if state != complete {
			return used, state
		}
		if used = next; base+int64(used) >= x.due() && x.border(base+int64(used)) {
			return used, complete
		}
	}
	return used, complete
}

// due is the offset from which on the next border is noted.
func (x *indexer) due() int64 {
	return min(x.starts[len(x.starts)-1]+x.every, x.chunk+x.segment)
}

// border notes a record's start; true: the segment ends here.
func (x *indexer) border(at int64) bool {
	if at >= x.chunk+x.segment || at == x.size {
		x.end = at
		return true
	}
	x.starts = append(x.starts, at)
	return false
}
