package memory

import (
	"os"
	"path/filepath"
	"testing"
)

// A job may use as much memory as its cgroup allows. If it has read many files, it has used all of
// that, as the cgroup counts.
func TestMemoryIsTakenAsTheCgroupAllows(t *testing.T) {
	for name, of := range map[string]struct{ own, top, limit, used, prefix string }{
		"version 1": {"9:name=systemd:/\n4:cpu,memory:/jobs/job_7/step_0\n0::/\n", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"},
		"version 2": {"0::/jobs/job_7/step_0\n", "sys/fs/cgroup", "memory.max", "memory.current", ""},
	} {
		for _, group := range []string{"jobs/job_7", "."} { // a container sees its own cgroup as the topmost one
			root := t.TempDir()
			write := func(path, text string) {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			free := func(want int64) {
				t.Helper()
				if got, known := affordableIn(root); !known || got != want {
					t.Errorf("%s in %s: %d bytes are free (%v), want %d", name, group, got, known, want)
				}
			}
			if _, known := affordableIn(root); known {
				t.Error("nothing is known, and a number is given")
			}
			write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 5 kB\n")
			write("proc/self/cgroup", of.own)
			free(5 << 10)
			at := filepath.Join(of.top, group)
			write(filepath.Join(at, of.used), "990\n")
			write(filepath.Join(at, "memory.stat"), "anon 5\nfile 700\n"+of.prefix+"inactive_file 400\n"+of.prefix+"active_file 200\n")
			write(filepath.Join(at, of.limit), "max\n")
			free(5 << 10)
			write(filepath.Join(at, of.limit), "1000\n")
			free(610)
		}
	}
	if free, known := affordable(); !known || free <= 0 {
		t.Errorf("this machine has %d bytes free (%v)", free, known)
	}
}
