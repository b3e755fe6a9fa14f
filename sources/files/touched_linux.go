package files

import (
	"io/fs"
	"syscall"
)

// touched is when a file came to its name, or its content or rights changed: ns since 1970.
func touched(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}
