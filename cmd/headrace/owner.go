package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/advice"
)

// owner is a `headrace run`'s right to start a job's trainers on this machine. Two runs
// would both start a rank 0, and the master takes the later process of a rank for the
// successor of the earlier one: each run would end the other's trainers.
//
// It is a lock on a file beside the agent's socket, one for each --node-rank. The kernel
// gives it back when the process ends, however it ends.
type owner struct {
	file *os.File
	path string
}

// own takes the trainers of node rank of job, whose agent has that socket.
func own(job, socket string, nodeRank int) (*owner, error) {
	path := fmt.Sprintf("%s.run-%d", socket, nodeRank)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			defer f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, taken(job, path)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !isAt(f, path) { // its owner removed it between our two calls
			_ = f.Close()
			continue
		}
		if err := errors.Join(f.Truncate(0), writeText(f, fmt.Sprintf("process %d\n", os.Getpid()))); err != nil {
			_ = f.Close()
			return nil, err
		}
		return &owner{f, path}, nil
	}
}

func writeText(f *os.File, text string) error {
	_, err := f.WriteString(text)
	return err
}

// release gives the trainers back. The file is removed while it is locked, so that nobody
// locks a file that is about to go.
func (o *owner) release() {
	_ = os.Remove(o.path)
	_ = o.file.Close()
}

// isAt reports whether path still names the open file f.
func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

func taken(job, path string) error {
	text, err := os.ReadFile(path)
	by := strings.TrimSpace(string(text))
	if err != nil || by == "" {
		by = "another process"
	}
	return advice.Failed.Errorf("for a second model beside it: `headrace run --job NAME`, which reads everything for itself; "+
		"for more trainers of this one: stop it, and start it with a higher --nproc-per-node",
		"job %s has trainers already on this machine: those of `headrace run`, %s; two runs would both start rank 0", job, by)
}
