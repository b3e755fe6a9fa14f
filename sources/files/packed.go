package files

import (
	"context"
	"errors"
	"fmt"

	"github.com/headrace/headrace/sources"
)

// Listing unpacks a compressed file once, segment by segment, to find where its content ends.
// It keeps restart points on the way; a reader on the same machine begins at one of them. If
// all zstd frames of a file say how long their content is, listing does not unpack the file.

// pointsFor returns the restart points of the file of l. A reading keeps using them after they
// are dropped here.
func (s *Source) pointsFor(l *locator) *pointsOf {
	s.pointsMu.Lock()
	defer s.pointsMu.Unlock()
	key := pointsKey{l.Codec, l.Identity}
	p := s.points[key]
	if p == nil {
		if s.points == nil || len(s.points) >= maxPointLists {
			s.points = map[pointsKey]*pointsOf{}
		}
		p = newPoints(&s.trimmer, l.Codec, l.Identity, s.log)
		s.points[key] = p
	}
	return p
}

type pointsKey struct {
	codec codec
	id    identity
}

const maxPointLists = 1024

// firstContent opens the content of a file that is being listed, and finds where its
// data begins.
func (s *Source) firstContent(ctx context.Context, f file, l *locator) (content, error) {
	l.Plain = -1
	var data content = &plain{f, l.Identity.Size}
	if l.Codec = s.codecOf(l.Path); l.Codec != noCodec && l.Identity.Size > 0 {
		u := newUnpacked(f, l.Identity.Size, l.Codec, s.pointsFor(l))
		data = u
		if err := s.measureFirst(u, l); err != nil {
			return data, s.contentError(l.Path, err)
		}
	} else {
		l.Codec = noCodec
	}
	var err error
	l.Data, err = s.dataStart(ctx, data, l.Path, l.Codec)
	return data, err
}

// measureFirst finds the length of the content if that is cheap: if the frames of a zstd file
// say it, or if the content is so short that the first read comes to its end. If the length
// stays unknown, the content is longer than any header line.
func (s *Source) measureFirst(u *unpacked, l *locator) error {
	if l.Codec == zstdCodec {
		length, known, err := zstdLength(u.raw, u.packed, u.points)
		if err != nil {
			return err
		}
		if known {
			l.Plain, u.size = length, length
		}
	}
	room := scanRoom(maxHeader + 16)
	defer scanRooms.Put(room)
	head := (*room)[:min(maxHeader+16, u.size)]
	if _, err := readFull(u, head, 0); err != nil && !errors.Is(err, errShort) {
		return err
	}
	if u.size != unknownSize {
		l.Plain = u.size
	}
	return nil
}

// measure unpacks the next segment of the file that is listed, and gives its end.
func (s *Source) measure(ctx context.Context, c *openList) (int64, error) {
	room := scanRoom(s.blocks.scan)
	defer scanRooms.Put(room)
	buf := (*room)[:s.blocks.scan]
	at := c.at
	for at < c.data.Size() && (at < c.at+s.blocks.segment || s.framing.Kind == Whole) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := s.readListed(c, buf[:min(int64(len(buf)), c.data.Size()-at)], at)
		if err != nil {
			return 0, err
		}
		at += int64(n)
		if s.framing.Kind == Whole && at > int64(s.spec.MaxRecord) {
			return 0, &sources.TooLarge{Partition: s.partition, Position: sources.Position{Segment: s.nextID()}, Name: c.name, Size: at, Limit: int64(s.spec.MaxRecord)}
		}
	}
	if size := c.data.Size(); s.framing.Kind == Fixed && size != unknownSize && size%int64(s.framing.Size) != 0 {
		return 0, s.fileError(c.name, wrongMultiple(size, int64(s.framing.Size)))
	}
	return at, nil
}

func wrongMultiple(size, record int64) error {
	return fmt.Errorf("has %d bytes, which are %d records of %d bytes and %d bytes more: is decode.record_size right?", size, size/record, record, size%record)
}

// contentError adds the file's name to an error of reading its content.
func (s *Source) contentError(name string, err error) error {
	if d, ok := errors.AsType[*damage](err); ok {
		return fmt.Errorf("%s: %s: %w: repair it, or leave it out of files.paths", s.partition, name, d)
	}
	return s.fileError(name, err)
}

// headerOf reads the line that names the fields. Of a compressed file it is remembered:
// a reading in the middle need not go back to the beginning.
func (s *Source) headerOf(data content, l *locator) ([]byte, error) {
	u, packed := data.(*unpacked)
	if !packed || !s.framing.Header {
		return s.header(data, l)
	}
	u.points.mu.Lock()
	known := u.points.header
	u.points.mu.Unlock()
	if known != nil {
		return known, nil
	}
	first := newUnpacked(u.raw, u.packed, u.codec, u.points)
	defer first.end()
	header, err := s.header(first, l)
	if err == nil {
		u.points.mu.Lock()
		u.points.header = header
		u.points.mu.Unlock()
	}
	return header, err
}
