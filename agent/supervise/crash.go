package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// crashSignals are those that a process gets for its own doing.
var crashSignals = map[syscall.Signal]bool{
	syscall.SIGSEGV: true, syscall.SIGBUS: true, syscall.SIGABRT: true, syscall.SIGILL: true, syscall.SIGFPE: true, syscall.SIGSYS: true,
}

// Crashed says whether the process crashed by such a signal, or a shell says so of its
// child (128 and the signal). SIGKILL and SIGTERM come from others; an exit status may be
// any error of the program.
func (e End) Crashed() bool {
	return crashSignals[e.Signal] || e.Signal == 0 && e.Code > 128 && crashSignals[syscall.Signal(e.Code-128)]
}

// killed says whether the process ended by SIGKILL, or a shell says so of its child.
func (e End) killed() bool {
	return e.Signal == syscall.SIGKILL || e.Signal == 0 && e.Code == 128+int(syscall.SIGKILL)
}

// memoryKills counts the processes of our cgroup that the kernel killed for want of memory.
// The workers are in it too. Each kill explains one worker's SIGKILL.
type memoryKills struct {
	mu   sync.Mutex
	path string // of memory.events; empty: it is not known
	seen int64
}

func newMemoryKills(root string) *memoryKills {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return &memoryKills{}
	}
	for line := range strings.Lines(string(own)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			m := &memoryKills{path: filepath.Join(root, "sys/fs/cgroup", group, "memory.events")}
			m.seen = m.count()
			return m
		}
	}
	return &memoryKills{}
}

func (m *memoryKills) count() int64 {
	if m.path == "" {
		return 0
	}
	events, err := os.ReadFile(m.path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(events) {
		if n, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill ")); ok {
			count, _ := strconv.ParseInt(string(n), 10, 64)
			return count
		}
	}
	return 0
}

// one says whether there was one more kill than those that explain another worker's end.
func (m *memoryKills) one() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count() <= m.seen {
		return false
	}
	m.seen++
	return true
}
