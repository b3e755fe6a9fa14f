package report

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Kind says what an entry of a journal is about.
type Kind uint32

const (
	Open    Kind = 1 + iota // the process has started; payload: About, as JSON
	Ready                   // its stream is open: it asks for its first batch
	Segment                 // payload: {"segment", "name"}: the number of a file in later entries
	Yielded                 // the trainer has a batch; payload below
	Begin                   // from here on the model is changed for the batch
	Applied                 // the batch is in the model; payload: float32 prediction per row
	Stepped                 // stream.step() has returned
	End                     // end of data; payload: {"cpu_seconds"}
)

// Entry is one entry of a journal. On disk, little-endian: "HRJ1", kind u32,
// number u64, time i64, rows u32, bytes u32, payload, CRC-32 (IEEE) of all that.
//
// The payload of Yielded is: runs u32, 0 u32, per run (segment i64, rows i64), then
// per row the offset (i64), then per row the checksum of its values (u64).
type Entry struct {
	Kind    Kind
	Number  uint64 // of the batch, from 1
	Time    int64  // CLOCK_MONOTONIC, ns
	Rows    int
	Payload []byte // valid until the next call of Next
}

const (
	entryHeader = 32
	maxPayload  = 64 << 20
)

// ErrTorn means that a journal ends inside an entry: its writer was killed during the write, or is still
// writing.
var ErrTorn = errors.New("the journal ends inside an entry")

// Reader reads the entries of a journal, also while it is being written: after io.EOF or ErrTorn, call Next
// again.
type Reader struct {
	file *os.File
	at   int64
	buf  []byte
}

// OpenJournal opens a journal for reading.
func OpenJournal(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &Reader{file: f}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Next returns the next entry. It returns io.EOF at the end of the file, ErrTorn inside an entry, or an
// error that names file and offset.
func (r *Reader) Next() (Entry, error) {
	head, err := r.read(entryHeader)
	if err != nil {
		return Entry{}, err
	}
	if string(head[:4]) != "HRJ1" {
		return Entry{}, fmt.Errorf("%s offset %d: no entry begins here", r.file.Name(), r.at)
	}
	size := int(binary.LittleEndian.Uint32(head[28:]))
	if size > maxPayload {
		return Entry{}, fmt.Errorf("%s offset %d: an entry of %d bytes; the limit is %d", r.file.Name(), r.at, size, maxPayload)
	}
	raw, err := r.read(entryHeader + size + 4)
	if err == io.EOF {
		err = ErrTorn
	}
	if err != nil {
		return Entry{}, err
	}
	body := raw[:entryHeader+size]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(raw[entryHeader+size:]) {
		return Entry{}, fmt.Errorf("%s offset %d: the entry's checksum is wrong", r.file.Name(), r.at)
	}
	r.at += int64(len(raw))
	return Entry{
		Kind:    Kind(binary.LittleEndian.Uint32(body[4:])),
		Number:  binary.LittleEndian.Uint64(body[8:]),
		Time:    int64(binary.LittleEndian.Uint64(body[16:])),
		Rows:    int(binary.LittleEndian.Uint32(body[24:])),
		Payload: body[entryHeader:],
	}, nil
}

// read returns the n bytes at the reader's offset without moving it.
func (r *Reader) read(n int) ([]byte, error) {
	if cap(r.buf) < n {
		r.buf = make([]byte, n, 2*n)
	}
	got, err := r.file.ReadAt(r.buf[:n], r.at)
	switch {
	case got == n:
		return r.buf[:n], nil
	case err != nil && err != io.EOF:
		return nil, err
	case got == 0:
		return nil, io.EOF
	}
	return nil, ErrTorn
}
