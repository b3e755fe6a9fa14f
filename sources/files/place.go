package files

import (
	"io"
	"os"
)

// file is one file of a dataset that is open for reading. The code that reads, cuts, unpacks
// and compares files uses only this interface, so a file may lie anywhere.
type file interface {
	io.ReaderAt
	io.Closer
	// stamp is what the place where the file lies says of it now.
	stamp() (stamp, error)
}

// localFile is a file of this machine.
type localFile struct{ *os.File }

func (f localFile) stamp() (stamp, error) { return stampOf(f.File) }
