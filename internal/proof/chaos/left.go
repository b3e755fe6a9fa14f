package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// left lists what a run has left behind: processes, sockets, locks, addresses.
func left(run, sockets, state string) (found []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte(mark+run)) {
			line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			found = append(found, fmt.Sprintf("process %d: %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	if names, _ := filepath.Glob(filepath.Join(sockets, "*")); len(names) > 0 {
		found = append(found, "sockets "+strings.Join(names, ", "))
	}
	if _, err := os.Stat(filepath.Join(state, "master.addr")); err == nil {
		found = append(found, "the master's address file")
	}
	return found
}

// cries lists the outputs that hold a message that no process may print, such as a panic.
func cries(dir string) (found []string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		for _, word := range []string{"panic:", "fatal error:", "DATA RACE", "ProtocolError", "invariant", "Traceback"} {
			if i := bytes.Index(text, []byte(word)); i >= 0 {
				line, _, _ := bytes.Cut(text[i:], []byte("\n"))
				found = append(found, fmt.Sprintf("%s: %s", filepath.Base(name), line))
			}
		}
	}
	return found
}

// resident is the memory of a process in MiB.
func resident(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib >> 10
		}
	}
	return 0
}
