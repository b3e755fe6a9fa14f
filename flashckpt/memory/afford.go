package memory

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// group is our cgroup, in a container.
const group = "/sys/fs/cgroup"

// affordable is how many bytes of memory are free: a tmpfs may promise more than the
// machine has, and the kernel would end a process for it.
func affordable() (free int64, known bool) {
	least := func(n int64, ok bool) {
		if ok && (!known || n < free) {
			free, known = n, true
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		kib, ok := value(b, "MemAvailable:")
		least(kib<<10, ok)
	}
	least(freeOf(group))
	return free, known
}

// freeOf is how many bytes the processes of a cgroup may still take. Files that were read count as
// used, and their memory is given back when it is needed.
func freeOf(group string) (free int64, known bool) {
	number := func(name string) (int64, bool) {
		b, err := os.ReadFile(filepath.Join(group, name))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
		return n, err == nil // "max": there is no limit
	}
	limit, limited := number("memory.max")
	used, ok := number("memory.current")
	if !limited || !ok {
		return 0, false
	}
	if b, err := os.ReadFile(filepath.Join(group, "memory.stat")); err == nil {
		for _, name := range []string{"inactive_file", "active_file"} {
			cached, _ := value(b, name)
			used -= cached
		}
	}
	return limit - used, true
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
