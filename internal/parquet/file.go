package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/sources"
)

// File is what a file's footer says. It holds no handle: Read is given one.
type File struct {
	Rows   int64
	Groups []Group

	size   int64
	meta   *metadata
	root   *node
	leaves []*node
}

// Group is a row group: the rows [Start, Start+Rows) of the file.
type Group struct{ Start, Rows int64 }

const (
	magic     = "PAR1"
	encrypted = "PARE"
	maxFooter = 256 << 20
)

// ErrEncrypted: the file needs keys.
var ErrEncrypted = errors.New("it is encrypted, and encrypted Parquet files are not supported")

// Open reads the footer of a file that has size bytes.
func Open(r io.ReaderAt, size int64) (f *File, err error) {
	defer recovered(&err)
	if size < 12 {
		return nil, fmt.Errorf("it has %d bytes and is no Parquet file", size)
	}
	var tail [8]byte
	if err := readAt(r, tail[:], size-8); err != nil {
		return nil, err
	}
	switch string(tail[4:]) {
	case magic:
	case encrypted:
		return nil, ErrEncrypted
	default:
		return nil, errors.New("it does not end with PAR1: it is no Parquet file, or was cut short, or is not written to its end yet")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if n > size-12 || n > maxFooter {
		return nil, fmt.Errorf("its footer of %d bytes does not lie in its %d bytes", n, size)
	}
	b := make([]byte, n)
	if err := readAt(r, b, size-8-n); err != nil {
		return nil, err
	}
	m, err := parseMetadata(b)
	if err != nil {
		return nil, err
	}
	return newFile(m, size)
}

func newFile(m *metadata, size int64) (*File, error) {
	if m.encrypted {
		return nil, ErrEncrypted
	}
	f := &File{size: size, meta: m}
	var err error
	if f.root, f.leaves, err = buildSchema(m.schema); err != nil {
		return nil, err
	}
	for i, g := range m.groups {
		if g.rows < 0 || g.rows > 1<<40 || f.Rows > 1<<60 {
			return nil, fmt.Errorf("its row group %d has %d rows", i, g.rows)
		}
		if len(g.columns) != len(f.leaves) {
			return nil, fmt.Errorf("its row group %d has %d columns, and its schema %d", i, len(g.columns), len(f.leaves))
		}
		f.Groups = append(f.Groups, Group{f.Rows, g.rows})
		f.Rows += g.rows
	}
	if m.rows != f.Rows {
		return nil, fmt.Errorf("it says that it has %d rows, and its row groups have %d", m.rows, f.Rows)
	}
	return f, nil
}

// recovered turns a panic into an error. The package should not panic, whatever the bytes of
// a file are. If it does all the same, the reader gets an error and the process goes on.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it is damaged: %v", p)
	}
}

// readAt fills b.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fieldError puts the name of the column in front of an error.
func fieldError(path string, err error) error { return fmt.Errorf("column %s: %w", path, err) }

// describe sets the fields of c that are the same for all rows.
func (n *node) describe(p Path, c *sources.Column) error {
	kind, ticks, err := n.kind()
	if err != nil {
		return fieldError(p.Text, err)
	}
	c.Path, c.Kind, c.TicksPerSecond, c.List = p.Text, kind, ticks, n.rep > 0
	return nil
}
