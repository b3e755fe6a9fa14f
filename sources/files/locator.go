package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// locator opens a segment on any node, and says which file it must be. Its encoding is little
// longer than the path, because it travels in every grant.
type locator struct {
	Root     string // files.root
	Path     string // relative to it
	Identity identity
	HasFull  bool
	Full     uint64 // XXH64 of the whole file; verify: full
	Data     int64  // where the first record may begin: after byte order mark and header line
	End      int64  // of the segment
	// Codec: how the file is compressed. Data, End and Starts are then offsets of what it
	// unpacks to, and Plain is the length of that; -1: not known when it was listed.
	Codec codec
	Plain int64
	// Rows: offsets are rows, and Plain is how many the file has.
	Rows bool
	// Points: of an Avro file, where some of the segment's blocks begin; the first one is that
	// of the segment's first row.
	Points []rowPoint
	// Starts: if the framing is indexed, offsets where records begin. There is at least one;
	// the first is the segment's start. Otherwise empty.
	Starts []int64
	// Low and Came: of a folder that grows, which names were skipped when the file was listed,
	// and when the file came, in ns since 1970 (remember.go). Zero: not noted.
	Low  lowMark
	Came int64
}

const (
	locatorVersion = 5 // 1: a file that is not compressed; 2: compressed, or rows; 3: an object; 4: with Points; 5: with Came
	flagFull       = 1
	flagPacked     = 2
	flagRows       = 4
	flagObject     = 8
	flagPoints     = 16
	flagCame       = 32
	maxStarts      = 1 << 16
	maxPathBytes   = 4096 // PATH_MAX
)

var errLocator = errors.New("files: the locator of a segment is damaged")

func (l *locator) encode() []byte {
	b := make([]byte, 0, 64+len(l.Root)+len(l.Path)+4*len(l.Starts))
	flags := byte(0)
	if l.HasFull {
		flags |= flagFull
	}
	version := byte(1)
	switch {
	case l.Codec != noCodec:
		version, flags = 2, flags|flagPacked
	case l.Rows:
		version, flags = 2, flags|flagRows
	}
	if l.Identity.Tag != "" {
		version, flags = 3, flags|flagObject
	}
	if len(l.Points) > 0 {
		version, flags = 4, flags|flagPoints
	}
	if l.Came != 0 {
		version, flags = 5, flags|flagCame
	}
	b = append(b, version, flags)
	for _, s := range []string{l.Root, l.Path} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(l.Identity.Size))
	b = binary.AppendVarint(b, l.Identity.Modified)
	b = binary.AppendUvarint(b, l.Identity.Inode)
	b = binary.LittleEndian.AppendUint64(b, l.Identity.Print)
	if l.HasFull {
		b = binary.LittleEndian.AppendUint64(b, l.Full)
	}
	if l.Identity.Tag != "" {
		b = binary.AppendUvarint(b, uint64(len(l.Identity.Tag)))
		b = append(b, l.Identity.Tag...)
	}
	if l.Codec != noCodec || l.Rows {
		b = append(b, byte(l.Codec))
		b = binary.AppendUvarint(b, uint64(l.Plain+1))
	}
	b = binary.AppendUvarint(b, uint64(l.Data))
	b = binary.AppendUvarint(b, uint64(l.End))
	b = binary.AppendUvarint(b, uint64(len(l.Starts)))
	last := int64(0)
	for _, s := range l.Starts {
		b = binary.AppendUvarint(b, uint64(s-last))
		last = s
	}
	if len(l.Points) > 0 {
		b = binary.AppendUvarint(b, uint64(len(l.Points)))
		var last rowPoint
		for _, p := range l.Points {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.row-last.row)), uint64(p.at-last.at))
			last = p
		}
	}
	if l.Came != 0 {
		b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, l.Came), l.Low.Time), l.Low.Edge)
		b = append(binary.AppendUvarint(b, uint64(len(l.Low.Name))), l.Low.Name...)
	}
	return b
}

func decodeLocator(b []byte) (*locator, error) {
	d := locatorReader{b: b}
	version, flags := d.byte(), d.byte()
	if d.bad || version == 0 {
		return nil, errLocator
	}
	if version > locatorVersion {
		return nil, fmt.Errorf("files: the locator of a segment is of version %d, and this program reads up to %d; update it", version, locatorVersion)
	}
	l := &locator{Root: d.text(), Path: d.text()}
	l.Identity = identity{Size: d.length(), Modified: d.varint(), Inode: d.uvarint(), Print: d.fixed()}
	if l.HasFull = flags&flagFull != 0; l.HasFull {
		l.Full = d.fixed()
	}
	if flags&flagObject != 0 {
		if l.Identity.Tag = d.text(); l.Identity.Tag == "" || version < 3 {
			return nil, errLocator
		}
	}
	most := l.Identity.Size
	l.Rows = flags&flagRows != 0
	if flags&(flagPacked|flagRows) != 0 {
		l.Codec, l.Plain = codec(d.byte()), d.length()-1
		if most = l.Plain; most < 0 {
			most = unknownSize
		}
		if l.Rows != (l.Codec == noCodec) || l.Codec > bzip2Codec || version < 2 || l.Rows && l.Plain < 0 {
			return nil, errLocator
		}
	}
	l.Data, l.End = d.length(), d.length()
	n := d.uvarint()
	if n > maxStarts || n > uint64(len(d.b)) {
		return nil, errLocator
	}
	at := int64(0)
	for range n {
		if at += d.length(); at < 0 {
			return nil, errLocator
		}
		l.Starts = append(l.Starts, at)
	}
	if flags&flagPoints != 0 {
		if l.Points = d.points(); version < 4 || !l.Rows || len(l.Points) == 0 {
			return nil, errLocator
		}
	}
	if flags&flagCame != 0 {
		l.Came, l.Low = d.varint(), lowMark{Time: d.varint(), Edge: d.varint(), Name: d.text()}
		if version < 5 || l.Came == 0 {
			return nil, errLocator
		}
	}
	if d.bad || len(d.b) > 0 || flags&^(flagFull|flagPacked|flagRows|flagObject|flagPoints|flagCame) != 0 || !l.named() ||
		l.Data > most || l.End > most || at > most {
		return nil, errLocator
	}
	return l, nil
}

// named reports whether the path can be that of a file below the root, or of an object.
func (l *locator) named() bool {
	if l.Identity.Tag != "" {
		return l.Path != "" && strings.HasPrefix(l.Root, scheme)
	}
	return filepath.IsLocal(l.Path)
}

// locatorReader reads, and sets bad if something is missing or wrong.
type locatorReader struct {
	b   []byte
	bad bool
}

func (d *locatorReader) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return make([]byte, min(n, 8))
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

// points reads the places of blocks. A sum that overflows is damage.
func (d *locatorReader) points() (all []rowPoint) {
	n := d.uvarint()
	if n > maxStarts || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	var p rowPoint
	for range n {
		p.row, p.at = p.row+d.length(), p.at+d.length()
		if d.bad = d.bad || p.row < 0 || p.at < 0; d.bad {
			return nil
		}
		all = append(all, p)
	}
	return all
}

func (d *locatorReader) byte() byte    { return d.take(1)[0] }
func (d *locatorReader) fixed() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *locatorReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *locatorReader) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length is a number that must fit in int64.
func (d *locatorReader) length() int64 {
	v := d.uvarint()
	if v > 1<<62 {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *locatorReader) text() string {
	n := d.uvarint()
	if n > maxPathBytes {
		d.bad = true
		return ""
	}
	return string(d.take(int(n)))
}
