package link

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is the longest path of a Unix socket on Linux, in bytes.
const maxSocketPath = 107

// SocketPath is the default socket of a job's agent (docs/PROTOCOL.md, The trainer
// socket). Clients compute the same path.
func SocketPath(job string) string {
	if s := os.Getenv("HEADRACE_AGENT"); s != "" {
		return s
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "headrace", job+".sock")
	}
	return filepath.Join(fmt.Sprintf("/tmp/headrace-%d", os.Getuid()), job+".sock")
}

// CheckSocketPath says why no socket can lie at path; nil: one can.
func CheckSocketPath(path string) error {
	if path == "" {
		return fmt.Errorf("the path of a socket is empty")
	}
	if n := len(path); n > maxSocketPath {
		return fmt.Errorf("%s has %d bytes; Linux allows %d for a socket: choose a shorter path, as in /tmp/headrace.sock", path, n, maxSocketPath)
	}
	return nil
}
