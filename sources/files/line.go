package files

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/headrace/headrace/internal/dataset"
)

// lineSearch is how far into a file lines are counted. It takes about a second.
const lineSearch = 2 << 30

// Place is the file with the line of offset, as compilers and editors have it: day_0.tsv:17.
// Lines can only be counted from the beginning. So deep in a large file, and in a file that has
// no lines, Place is the file alone.
func (f *Spec) Place(spec *dataset.Spec, file string, offset int64) string {
	if spec.Decode.CountsRows() {
		return fmt.Sprintf("%s row %d", file, offset)
	}
	if f := spec.Decode.Format; f == "raw" || f == "binary" || f == "protobuf" || spec.Decode.Features() || offset > lineSearch {
		return file
	}
	// Through the root, as the records were read: the name may hold links.
	root, err := os.OpenRoot(f.Root)
	if err != nil {
		return file
	}
	defer func() { _ = root.Close() }()
	opened, err := root.Open(file)
	if err != nil {
		return file
	}
	defer func() { _ = opened.Close() }()
	text, ok := f.text(spec, file, opened, offset)
	if !ok {
		return file
	}
	line, buf := 1, make([]byte, 256<<10)
	for left := offset; left > 0; {
		n, err := text.Read(buf[:min(left, int64(len(buf)))])
		line += bytes.Count(buf[:n], []byte{'\n'})
		left -= int64(n)
		if left > 0 && err == io.EOF || err != nil && err != io.EOF {
			return file // it has changed meanwhile
		}
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// packedSearch is the same for a compressed file.
const packedSearch = 512 << 20

// text reads the file from its beginning, unpacked.
func (f *Spec) text(spec *dataset.Spec, file string, opened *os.File, offset int64) (io.Reader, bool) {
	framing, err := framingOf(spec.Decode)
	if err != nil {
		return nil, false
	}
	s := &Source{spec: *f, framing: framing}
	how := s.codecOf(file)
	if how == noCodec {
		return opened, true
	}
	info, err := opened.Stat()
	if err != nil || offset > packedSearch {
		return nil, false
	}
	r, err := how.begin(opened, info.Size(), point{}, noNotes{})
	return r, err == nil
}

type noNotes struct{}

func (noNotes) wanted(int64) bool { return false }
func (noNotes) distance() int64   { return pointsEvery }
func (noNotes) note(*point)       {}
