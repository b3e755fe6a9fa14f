package files

import (
	"errors"
	"io"
	"sync"
)

// content is what records are cut from: the bytes of a file, or what a compressed file
// unpacks to. ReadAt gives less than it was asked for only with an error; at the end it
// is io.EOF.
type content interface {
	io.ReaderAt
	// Size is how many bytes there are; unknownSize until the end was read.
	Size() int64
	Close() error
}

const unknownSize = 1 << 62

// plain is a file's own bytes. If the file shrinks, its stamp shows it.
type plain struct {
	file
	size int64
}

func (p *plain) Size() int64 { return p.size }

// unpacked is a compressed file as if it were a plain one. Reading goes forward from a
// restart point; what was read last is kept, because cursors read a record again that did
// not end in the block before. It is used by one goroutine at a time.
type unpacked struct {
	raw    file
	packed int64 // size of raw
	codec  codec
	points *pointsOf

	r      unpacker // nil: not begun
	at     int64    // of r
	recent []byte   // content [at-len(recent), at)
	size   int64
	err    error // of r
}

// recentBytes is more than a cursor goes back.
const recentBytes = 2 << 20

func newUnpacked(raw file, packed int64, c codec, points *pointsOf) *unpacked {
	return &unpacked{raw: raw, packed: packed, codec: c, points: points, size: unknownSize}
}

// readRaw lets a reading go on with another handle of the same file.
type readRaw struct{ u *unpacked }

func (r readRaw) ReadAt(p []byte, at int64) (int, error) { return r.u.raw.ReadAt(p, at) }

func (u *unpacked) Size() int64 { return u.size }

func (u *unpacked) Close() error {
	u.end()
	return u.raw.Close()
}

func (u *unpacked) end() {
	if u.r != nil {
		u.r.Close()
	}
	u.r, u.recent, u.err = nil, nil, nil
}

func (u *unpacked) ReadAt(p []byte, off int64) (int, error) {
	if off >= u.size {
		return 0, io.EOF
	}
	if err := u.reach(off); err != nil {
		return 0, err
	}
	n := 0
	if off < u.at {
		n = copy(p, u.recent[len(u.recent)-int(u.at-off):])
	}
	for n < len(p) {
		k, err := u.read(p[n:])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// reach makes r stand at off, or after off if recent has the content from off on.
func (u *unpacked) reach(off int64) error {
	if u.r == nil || off < u.at-int64(len(u.recent)) || off > u.at+u.points.every {
		p := u.points.before(off)
		if u.r == nil || off < u.at || p.Out > u.at {
			if err := u.begin(p); err != nil {
				return err
			}
		}
	}
	var skip []byte
	for u.at < off {
		if skip == nil {
			skip = make([]byte, min(256<<10, off-u.at))
		}
		if _, err := u.read(skip[:min(int64(len(skip)), off-u.at)]); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacked) begin(p point) error {
	u.end()
	r, err := u.codec.begin(readRaw{u}, u.packed, p, u.points)
	if err != nil {
		return err
	}
	u.r, u.at = r, p.Out
	return nil
}

// read goes on, and keeps what it read.
func (u *unpacked) read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.r.Read(p)
	u.at += int64(n)
	u.keep(p[:n])
	if err == io.EOF {
		u.size = u.at
	}
	u.err = err
	return n, err
}

func (u *unpacked) keep(p []byte) {
	if len(p) >= recentBytes {
		u.recent, p = u.recent[:0], p[len(p)-recentBytes:]
	}
	if len(u.recent)+len(p) > 2*recentBytes {
		stay := recentBytes - len(p)
		u.recent = u.recent[:copy(u.recent, u.recent[len(u.recent)-stay:])]
	}
	u.recent = append(u.recent, p...)
}

// readAll fills b from r.
func readAll(r io.Reader, b []byte) (int, error) {
	n, err := io.ReadFull(r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// idle has readings of compressed files whose range was read to its end. The next lease often
// goes on where the one before ended; then nothing is unpacked twice.
type idle struct {
	mu     sync.Mutex
	list   []idleReading // the newest last
	closed bool
}

type idleReading struct {
	path string
	id   identity
	u    *unpacked
}

const maxIdle = 8

// take gives a reading of the file that is at or before off, the nearest one, with raw as
// its handle; or nil.
func (d *idle) take(path string, id identity, off int64, raw file) *unpacked {
	d.mu.Lock()
	defer d.mu.Unlock()
	best := -1
	for i, r := range d.list {
		if r.path == path && r.id == id && r.u.at-int64(len(r.u.recent)) <= off && (best < 0 || r.u.at > d.list[best].u.at) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	u := d.list[best].u
	d.list = append(d.list[:best], d.list[best+1:]...)
	_ = u.raw.Close()
	u.raw = raw
	return u
}

// put takes a reading back.
func (d *idle) put(path string, id identity, u *unpacked) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || u.r == nil || u.err != nil {
		return u.Close()
	}
	d.list = append(d.list, idleReading{path, id, u})
	if len(d.list) > maxIdle {
		oldest := d.list[0].u
		d.list = append(d.list[:0], d.list[1:]...)
		return oldest.Close()
	}
	return nil
}

func (d *idle) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.list {
		_ = r.u.Close()
	}
	d.list, d.closed = nil, true
}
