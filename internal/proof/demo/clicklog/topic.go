package clicklog

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// Topic says where the log's records lie when they are produced into a topic: in
// the log's order, Stripe records to one partition, then as many to the next. So
// partition and offset of a record follow from its number, and nobody has to ask
// the broker what is where.
type Topic struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Stripe     int    `json:"stripe"`
	// Format of a partition's name, of the topic's and the number; "": name/number.
	Format string `json:"format,omitempty"`
}

// Number is the number of the record at an offset of a partition.
func (t Topic) Number(partition int, offset int64) int {
	stripe, in := int(offset)/t.Stripe, int(offset)%t.Stripe
	return (stripe*t.Partitions+partition)*t.Stripe + in
}

// Heads is where each partition ends when the first n records are in it.
func (t Topic) Heads(n int) []int64 {
	heads := make([]int64, t.Partitions)
	for p, at := 0, 0; at < n; p, at = (p+1)%t.Partitions, at+t.Stripe {
		heads[p] += int64(min(t.Stripe, n-at))
	}
	return heads
}

// Partition is the name that readers give a partition.
func (t Topic) Partition(p int) string {
	return fmt.Sprintf(cmp.Or(t.Format, "%s/%d"), t.Name, p)
}

const linesName = "lines.crc32"

// Lines reads the records of a log in order, as they are produced: without their
// line ends.
type Lines struct {
	dir   string
	files []File
	file  *os.File
	in    *bufio.Reader
}

// OpenLines begins with the first record of the log in logDir.
func (m *Manifest) OpenLines(logDir string) *Lines { return &Lines{dir: logDir, files: m.Files} }

// Next returns the next record, io.EOF behind the last one.
func (l *Lines) Next() ([]byte, error) {
	for {
		if l.file == nil {
			if len(l.files) == 0 {
				return nil, io.EOF
			}
			f, err := os.Open(filepath.Join(l.dir, l.files[0].Name))
			if err != nil {
				return nil, err
			}
			l.file, l.in, l.files = f, bufio.NewReaderSize(f, 1<<18), l.files[1:]
		}
		line, err := l.in.ReadBytes('\n')
		if err == nil {
			return line[:len(line)-1], nil
		}
		if err != io.EOF || len(line) > 0 {
			return nil, fmt.Errorf("%s: %d bytes behind its last line: %w", l.file.Name(), len(line), err)
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
}

// Close closes the file that is being read.
func (l *Lines) Close() (err error) {
	if l.file != nil {
		err = l.file.Close()
		l.file = nil
	}
	return err
}

// SetTopic adds to the truth in truthDir where the log's records will lie in t,
// and each record's CRC-32, for readers that decode by themselves.
func (m *Manifest) SetTopic(logDir, truthDir string, t Topic) (err error) {
	if t.Partitions < 1 || t.Stripe < 1 {
		return fmt.Errorf("topic %s: %d partitions and stripes of %d records; both are at least 1", t.Name, t.Partitions, t.Stripe)
	}
	f, err := os.Create(filepath.Join(truthDir, linesName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<18)
	lines := m.OpenLines(logDir)
	defer func() { err = errors.Join(err, lines.Close()) }()
	for {
		line, err := lines.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := binary.Write(w, binary.LittleEndian, crc32.ChecksumIEEE(line)); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	m.Topic = &t
	return m.write(truthDir)
}

// readLines reads what SetTopic wrote.
func (t *Truth) readLines(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, linesName))
	if err != nil {
		return err
	}
	if len(raw) != 4*t.Records {
		return fmt.Errorf("%s: %d bytes for %d records", linesName, len(raw), t.Records)
	}
	t.Lines = make([]uint32, t.Records)
	for i := range t.Lines {
		t.Lines[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return nil
}
