package pushing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

const longestLine = 64 << 20

// readLines sends each line that is not empty, in memory of its own. It ends with the
// input or ctx; a read that hangs ends with the process.
func readLines(ctx context.Context, in io.Reader) (<-chan []byte, <-chan error) {
	lines, failed := make(chan []byte, 1024), make(chan error, 1)
	go func() {
		defer close(failed)
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(make([]byte, 64<<10), longestLine)
		for s.Scan() {
			if line := bytes.TrimSuffix(s.Bytes(), []byte("\r")); len(line) > 0 {
				select {
				case lines <- bytes.Clone(line):
				case <-ctx.Done():
					return
				}
			}
		}
		err := s.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes", longestLine)
		}
		failed <- err
	}()
	return lines, failed
}

// EachWithALineEnd is all inputs one after the other. A last line without its end is one.
func EachWithALineEnd(inputs []io.Reader) io.Reader {
	var all []io.Reader
	for _, in := range inputs {
		all = append(all, in, bytes.NewReader([]byte("\n")))
	}
	return io.MultiReader(all...)
}
