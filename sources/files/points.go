package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/flate"
)

// point is a place of a compressed file where reading may begin: its byte In gives the
// content from Out on.
type point struct {
	Out, In int64
	// Inside: the point is inside a gzip member or a bzip2 stream, at the bit Bit of its byte.
	// Of a gzip member, Member is how many bytes of content it has before the point, CRC is
	// their CRC, and Window is the last 32 KiB of them. Of a bzip2 stream, CRC is that of its
	// blocks before the point, and Window is the stream's level.
	Inside bool
	Bit    uint8
	Member int64
	CRC    uint32
	Window []byte
}

// notes take the points that a reading passes.
type notes interface {
	wanted(out int64) bool // asked first: a point is some work to make
	distance() int64       // the least distance of two points inside a gzip member
	note(*point)
}

// pointsOf has the known points of one file, found by its identity. Each point is stored in a
// file of its own. Their folder may be deleted at any time: then a reading begins further back,
// and makes the points again. Several processes may share the folder, because each point is
// written under another name first. So a reader finds the points that listing has made.
type pointsOf struct {
	folder string // "": none; points are then kept in memory
	owner  []byte // what a point's file begins with
	trim   *trimmer
	log    *slog.Logger
	every  int64 // least distance of two points

	mu     sync.Mutex
	places []int64          // of all points, sorted
	light  map[int64]*point // those in memory
	header []byte           // the file's header line, once it was read
	failed bool             // the folder cannot be written; said once
	used   time.Time        // when the folder was marked as used
}

// Without a folder, at most so many points of one file are kept in memory. Those with a window
// take 32 KiB each.
const (
	maxLight        = 1 << 16
	maxLightWindows = 256
)

func newPoints(in *trimmer, c codec, id identity, log *slog.Logger) *pointsOf {
	p := &pointsOf{trim: in, log: log, every: pointsEvery, light: map[int64]*point{}}
	magic := "HRP1"
	switch c {
	case bzip2Codec:
		magic = "HRP2" // an older version would find points of bzip2, and cannot begin there
	case gzipCodec:
		magic = "HRP3" // an older version made wrong points after stored blocks
	}
	b := append([]byte(magic), byte(c))
	for _, n := range []uint64{uint64(id.Size), uint64(id.Modified), id.Inode, id.Print} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	p.owner = b
	if in.cache != "" {
		p.folder = filepath.Join(in.cache, pointsFolder, fmt.Sprintf("%016x", xxhash.Sum64(b)))
		p.look()
	}
	return p
}

// look lists the points that are in the folder by now.
func (p *pointsOf) look() {
	entries, err := os.ReadDir(p.folder)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		if out, err := strconv.ParseInt(e.Name(), 16, 64); err == nil && out > 0 {
			p.add(out)
		}
	}
}

// add is called with mu held.
func (p *pointsOf) add(out int64) {
	if i, known := slices.BinarySearch(p.places, out); !known {
		p.places = slices.Insert(p.places, i, out)
	}
}

func (p *pointsOf) wanted(out int64) bool {
	if out == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := sort.Search(len(p.places), func(i int) bool { return p.places[i] > out-p.every })
	return i == len(p.places) || p.places[i] >= out+p.every
}

func (p *pointsOf) distance() int64 { return p.every }

func (p *pointsOf) note(at *point) {
	p.trim.grew(p.keep(at))
}

// keep stores a point, and returns how many bytes of the disk it takes.
func (p *pointsOf) keep(at *point) (stored int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.folder != "" && !p.failed {
		var err error
		stored, err = p.write(at)
		if errors.Is(err, fs.ErrNotExist) { // the folder was trimmed just then
			stored, err = p.write(at)
		}
		if err == nil {
			p.add(at.Out)
			return stored
		}
		if errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		p.failed = true
		p.log.Warn("restart points of compressed files cannot be stored; readings that begin in the middle take longer", "folder", p.folder, "error", err)
	}
	most := maxLight
	if len(at.Window) > 1 {
		most = maxLightWindows
	}
	if len(p.light) < most {
		p.light[at.Out] = at
		p.add(at.Out)
	}
	return 0
}

// before gives the last point at or before out that is there; the zero point is the file's
// beginning.
func (p *pointsOf) before(out int64) point {
	if best := p.nearest(out); out-best > 2*p.every && p.folder != "" {
		p.look() // another process may have made some
	}
	for {
		best := p.nearest(out)
		if best == 0 {
			return point{}
		}
		at, err := p.load(best)
		switch {
		case err == nil:
			p.use()
			return *at
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errPoint):
			return point{} // it may be readable later: this process may have too many open files
		}
		p.forget(best)
	}
}

// use marks the folder as used just now: those that were used longest ago are trimmed
// first. Once in a while is enough.
func (p *pointsOf) use() {
	if p.folder == "" {
		return
	}
	now := time.Now()
	p.mu.Lock()
	due := now.Sub(p.used) >= usedEvery
	if due {
		p.used = now
	}
	p.mu.Unlock()
	if due {
		_ = os.Chtimes(p.folder, now, now)
	}
}

func (p *pointsOf) nearest(out int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := sort.Search(len(p.places), func(i int) bool { return p.places[i] > out })
	if i == 0 {
		return 0
	}
	return p.places[i-1]
}

// forget drops a point whose file is gone or damaged.
func (p *pointsOf) forget(out int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.light, out)
	if i, known := slices.BinarySearch(p.places, out); known {
		p.places = slices.Delete(p.places, i, i+1)
	}
	if p.folder != "" {
		_ = os.Remove(p.name(out))
	}
}

func (p *pointsOf) name(out int64) string {
	return filepath.Join(p.folder, strconv.FormatInt(out, 16))
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errPoint   = errors.New("files: the file of a restart point is damaged")
)

// betweenMembers stands in place of a bit's number: the point is where a gzip member or a
// zstd frame begins.
const betweenMembers = 0xff

// write stores a point: owner, numbers, the window compressed, CRC-32C of all that. It returns
// how many bytes of the disk that takes.
func (p *pointsOf) write(at *point) (int64, error) {
	if err := os.MkdirAll(p.folder, 0o700); err != nil {
		return 0, err
	}
	var b bytes.Buffer
	b.Write(p.owner)
	var n [37]byte
	binary.LittleEndian.PutUint64(n[0:], uint64(at.Out))
	binary.LittleEndian.PutUint64(n[8:], uint64(at.In))
	binary.LittleEndian.PutUint64(n[16:], uint64(at.Member))
	binary.LittleEndian.PutUint32(n[24:], at.CRC)
	n[28] = at.Bit
	if !at.Inside {
		n[28] = betweenMembers
	}
	binary.LittleEndian.PutUint64(n[29:], uint64(len(at.Window)))
	b.Write(n[:])
	w, err := flate.NewWriter(&b, 1)
	if err != nil {
		return 0, err
	}
	if _, err := w.Write(at.Window); err != nil {
		return 0, err
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	text := binary.LittleEndian.AppendUint32(b.Bytes(), crc32.Checksum(b.Bytes(), castagnoli))
	f, err := os.CreateTemp(p.folder, ".new-*")
	if err != nil {
		return 0, err
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), p.name(at.Out))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return 0, err
	}
	return onDisk(int64(len(text))), nil
}

func (p *pointsOf) load(out int64) (*point, error) {
	p.mu.Lock()
	at := p.light[out]
	p.mu.Unlock()
	if at != nil || p.folder == "" {
		return at, nil
	}
	f, err := os.Open(p.name(out))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > 256<<10 {
		return nil, errPoint
	}
	text := make([]byte, info.Size())
	if _, err := readFull(f, text, 0); errors.Is(err, errShort) {
		return nil, errPoint
	} else if err != nil {
		return nil, err
	}
	return p.parse(text, out)
}

func (p *pointsOf) parse(text []byte, out int64) (*point, error) {
	body := text[:max(0, len(text)-4)]
	if len(body) < len(p.owner)+37 || !bytes.HasPrefix(body, p.owner) ||
		crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(text[len(body):]) {
		return nil, errPoint
	}
	n := body[len(p.owner):]
	at := &point{Inside: n[28] != betweenMembers, Out: int64(binary.LittleEndian.Uint64(n[0:])), In: int64(binary.LittleEndian.Uint64(n[8:])),
		Member: int64(binary.LittleEndian.Uint64(n[16:])), CRC: binary.LittleEndian.Uint32(n[24:]), Bit: n[28]}
	size := binary.LittleEndian.Uint64(n[29:])
	if !at.Inside {
		at.Bit = 0
	}
	if at.Out != out || at.In < 0 || at.Member < 0 || at.Member > at.Out || at.Bit > 7 || size > 32<<10 {
		return nil, errPoint
	}
	at.Window = make([]byte, size)
	r := flate.NewReader(bytes.NewReader(n[37:]))
	if _, err := readAll(r, at.Window); err != nil {
		return nil, fmt.Errorf("%w: %w", errPoint, err)
	}
	return at, nil
}
