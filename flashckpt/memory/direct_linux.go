package memory

import (
	"os"

	"golang.org/x/sys/unix"
)

// past opens a file that is written past the page cache.
const past = unix.O_DIRECT

// room takes the room of a file before it is written: a full disk is told now.
func room(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
