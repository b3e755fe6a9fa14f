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

// Topic says where the log's records are in a topic. The producer writes them in the log's order:
// Stripe records to one partition, the next Stripe records to the next partition. So the number of a
// record gives its partition and offset, without asking the broker.
type Topic struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
	Stripe     int    `json:"stripe"`
	// Format makes the name of a partition from the topic's name and the number. "": name/number.
	Format string `json:"format,omitempty"`
}

// Number is the number of the record at an offset of a partition.
func (t Topic) Number(partition int, offset int64) int {
	stripe, in := int(offset)/t.Stripe, int(offset)%t.Stripe
	return (stripe*t.Partitions+partition)*t.Stripe + in
}

// Heads gives the end of each partition when the first n records are in the topic.
func (t Topic) Heads(n int) []int64 {
	heads := make([]int64, t.Partitions)
	for p, at := 0, 0; at < n; p, at = (p+1)%t.Partitions, at+t.Stripe {
		heads[p] += int64(min(t.Stripe, n-at))
	}
	return heads
}

// Partition is the name of a partition, as readers call it.
func (t Topic) Partition(p int) string {
	return fmt.Sprintf(cmp.Or(t.Format, "%s/%d"), t.Name, p)
}

const linesName = "lines.crc32"

// Lines reads the records of a log in the order in which they are produced, without line ends.
type Lines struct {
	dir   string
	files []File
	file  *os.File
	in    *bufio.Reader
}

// OpenLines begins with the first record of the log in logDir.
func (m *Manifest) OpenLines(logDir string) *Lines { return &Lines{dir: logDir, files: m.Files} }

// Next returns the next record, and io.EOF after the last one.
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
			return nil, fmt.Errorf("%s: %d bytes after its last line end: %w", l.file.Name(), len(line), err)
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

// SetTopic adds two things to the truth in truthDir: where the log's records will be in t, and the CRC-32
// of each record, for readers that decode by themselves.
func (m *Manifest) SetTopic(logDir, truthDir string, t Topic) (err error) {
	if t.Partitions < 1 || t.Stripe < 1 {
		return fmt.Errorf("topic %s: %d partitions and stripes of %d records; both must be at least 1", t.Name, t.Partitions, t.Stripe)
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
		return fmt.Errorf("%s has %d bytes, which do not fit %d records", linesName, len(raw), t.Records)
	}
	t.Lines = make([]uint32, t.Records)
	for i := range t.Lines {
		t.Lines[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return nil
}
