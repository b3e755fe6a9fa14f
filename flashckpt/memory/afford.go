package memory

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// affordable is how many bytes of memory are free: a tmpfs may promise more than the
// machine and its cgroups have, and the kernel would end a process for it.
func affordable() (free int64, known bool) { return affordableIn("/") }

func affordableIn(root string) (free int64, known bool) {
	least := func(n int64, ok bool) {
		if ok && (!known || n < free) {
			free, known = n, true
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		kib, ok := value(b, "MemAvailable:")
		least(kib<<10, ok)
	}
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return free, known
	}
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		switch {
		case len(f) < 3:
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			for _, group := range groupsOf(filepath.Join(root, "sys/fs/cgroup/memory"), f[2]) {
				least(freeOf(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
			}
		case f[0] == "0":
			for _, group := range groupsOf(filepath.Join(root, "sys/fs/cgroup"), f[2]) {
				least(freeOf(group, "memory.max", "memory.current", ""))
			}
		}
	}
	return free, known
}

// groupsOf lists the cgroups that may limit our memory: our own, and those above it. In a container
// its own may be the topmost one that it sees.
func groupsOf(top, path string) []string {
	all := []string{top}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." { // we were moved out of what we see
			break
		}
		if part != "" {
			all = append(all, filepath.Join(all[len(all)-1], part))
		}
	}
	return all
}

// freeOf is how many bytes the processes of a cgroup may still take. Files that were read count as
// used, and their memory is given back when it is needed.
func freeOf(group, limit, used, prefix string) (free int64, known bool) {
	number := func(name string) (int64, bool) {
		b, err := os.ReadFile(filepath.Join(group, name))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
		return n, err == nil // "max": there is no limit
	}
	most, limited := number(limit)
	taken, ok := number(used)
	if !limited || !ok {
		return 0, false
	}
	if b, err := os.ReadFile(filepath.Join(group, "memory.stat")); err == nil {
		for _, name := range []string{"inactive_file", "active_file"} {
			cached, _ := value(b, prefix+name)
			taken -= cached
		}
	}
	return most - taken, true
}

// value reads the number of a name in lines of names and numbers.
func value(text []byte, name string) (n int64, ok bool) {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == name {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
