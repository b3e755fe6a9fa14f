package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// memoryKills counts the processes of our cgroup that the kernel killed for want of memory.
// The workers are in it too. Each kill explains one worker's SIGKILL. The kernel counts a
// kill before it sends the signal, so whoever has seen a worker's end also sees its kill.
type memoryKills struct {
	mu   sync.Mutex
	path string  // of the file that has the count; empty: it is not known
	seen int64   // the count when we looked last
	free []int64 // the numbers of the kills that explain no end yet, in order
}

// newMemoryKills finds the cgroup that limits our memory. root is "/", but for tests. In
// version 2, memory.events counts the kills of the cgroup and of those below it. In version 1,
// memory.oom_control counts those of the cgroup alone.
func newMemoryKills(root string) *memoryKills {
	m := &memoryKills{}
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return m
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return m
	}
	version, group := memoryGroup(string(own))
	mount, below, found := groupMount(string(mounts), version, group)
	if !found {
		return m
	}
	if version == 1 {
		m.path = filepath.Join(root, mount, below, "memory.oom_control")
	} else {
		m.path = nearestEvents(filepath.Join(root, mount), below)
	}
	m.seen = m.count()
	return m
}

// memoryGroup reads /proc/self/cgroup: lines of number, controllers and path. Version 1 has
// the controller only where its line says "memory"; else it is one of version 2 (number 0).
func memoryGroup(own string) (version int, group string) {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(parts) < 3:
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			return 1, parts[2]
		case parts[0] == "0":
			version, group = 2, parts[2]
		}
	}
	return version, group
}

// groupMount finds in /proc/self/mountinfo where the group lies: the mount point, and the path
// below it. A mount may show only a part of the hierarchy (its root), as in a container.
func groupMount(mounts string, version int, group string) (mount, below string, found bool) {
	if strings.HasPrefix(group, "/..") { // we were moved out of what our namespace shows
		return "", "", false
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after) // kind: type, source, options
		if len(fields) < 5 || len(kind) < 3 {
			continue
		}
		ours := kind[0] == "cgroup2" && version == 2 ||
			kind[0] == "cgroup" && version == 1 && slices.Contains(strings.Split(kind[2], ","), "memory")
		if !ours || strings.HasPrefix(fields[3], "/..") { // it shows what is above our namespace
			continue
		}
		if below, err := filepath.Rel(unescape(fields[3]), group); err == nil && filepath.IsLocal(below) {
			return unescape(fields[4]), below, true
		}
	}
	return "", "", false
}

// unescape undoes what mountinfo does to spaces and the like.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// nearestEvents is the file of the group, or of the nearest one above it that has the
// controller: that one limits the memory of the group. The root has none.
func nearestEvents(mount, below string) string {
	for {
		path := filepath.Join(mount, below, "memory.events")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if below == "." {
			return ""
		}
		below = filepath.Dir(below)
	}
}

func (m *memoryKills) count() int64 {
	if m.path == "" {
		return 0
	}
	text, err := os.ReadFile(m.path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if n, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill ")); ok {
			count, _ := strconv.ParseInt(string(n), 10, 64)
			return count
		}
	}
	return 0
}

// one says whether a kill explains the end of a worker: a kill after the worker started, when the
// count was since, that explains no other worker's end. An earlier kill hit another process.
func (m *memoryKills) one(since int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for count := m.count(); m.seen < count; {
		m.seen++
		m.free = append(m.free, m.seen)
	}
	// The first one: workers that started later can have only the later ones.
	i, _ := slices.BinarySearch(m.free, since+1)
	if i == len(m.free) {
		return false
	}
	m.free = slices.Delete(m.free, i, i+1)
	return true
}
