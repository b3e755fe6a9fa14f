package memory

import (
	"bytes"
	"os"
	"strconv"
)

// affordable is how many bytes of memory are free: a tmpfs may promise more than the
// machine has, and the kernel would end a process for it.
func affordable() (free int64, known bool) {
	least := func(n int64) {
		if !known || n < free {
			free, known = n, true
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range bytes.Lines(b) {
			if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == "MemAvailable:" {
				if kib, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
					least(kib << 10)
				}
			}
		}
	}
	number := func(path string) (int64, bool) {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
		return n, err == nil // "max": there is no limit
	}
	if limit, ok := number("/sys/fs/cgroup/memory.max"); ok {
		if used, ok := number("/sys/fs/cgroup/memory.current"); ok {
			least(limit - used)
		}
	}
	return free, known
}
