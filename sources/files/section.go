package files

import (
	"bufio"
	"errors"
	"io"
)

// section reads the rest of a file, buffered, and knows where in the file it is.
type section struct {
	f        io.ReaderAt
	at, end  int64
	failed   error // the error of reading the file itself
	buffered *bufio.Reader
}

const sectionBuffer = 128 << 10

func newSection(f io.ReaderAt, at, end int64) *section {
	s := &section{f: f, at: at, end: end}
	s.buffered = bufio.NewReaderSize(s, sectionBuffer)
	return s
}

// Read is for the buffer.
func (s *section) Read(p []byte) (int, error) {
	if s.at >= s.end {
		return 0, io.EOF
	}
	n, err := s.f.ReadAt(p[:min(int64(len(p)), s.end-s.at)], s.at)
	s.at += int64(n)
	if n > 0 {
		return n, nil
	}
	if err != io.EOF {
		s.failed = err
	}
	return 0, err
}

// place is the byte of the file that is read next.
func (s *section) place() int64 { return s.at - int64(s.buffered.Buffered()) }

// damaged explains why a decompressor failed: the file could not be read, or its bytes
// are not what the format says.
func (s *section) damaged(c codec, err error) error {
	switch {
	case s.failed != nil:
		return s.failed
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &damage{c, s.place(), cutShort}
	}
	return &damage{c, s.place(), err.Error()}
}
