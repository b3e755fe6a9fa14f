package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	mountsV1 = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	mountsV2 = `31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
`
)

// machine has the files of a machine, below root.
type machine struct {
	t    *testing.T
	root string
}

func (m machine) write(path, text string) {
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func TestAKillForWantOfMemoryExplainsOneEnd(t *testing.T) {
	for name, c := range map[string]struct{ own, mounts, file, before, after string }{
		"version 2": {"0::/job\n", mountsV2, "sys/fs/cgroup/job/memory.events",
			"low 0\noom 3\noom_kill 2\noom_group_kill 0\n", "low 0\noom 4\noom_kill 3\noom_group_kill 0\n"},
		"version 2, the group above has the controller": {"0::/job/part/of\n", mountsV2, "sys/fs/cgroup/job/memory.events",
			"oom_kill 2\n", "oom_kill 3\n"},
		"version 2 in a container": {"0::/\n", mountsV2, "sys/fs/cgroup/memory.events", "oom_kill 0\n", "oom_kill 1\n"},
		"version 1": {"9:name=systemd:/\n4:memory:/job\n0::/\n", mountsV1, "sys/fs/cgroup/memory/job/memory.oom_control",
			"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"},
		"version 1 in a container": {"4:cpu,memory:/docker/abc\n",
			"35 31 0:32 /docker/abc /sys/fs/cgroup/a\\040b ro - cgroup cgroup rw,cpu,memory\n",
			"sys/fs/cgroup/a b/memory.oom_control", "oom_kill 0\n", "oom_kill 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			on := machine{t, t.TempDir()}
			on.write("proc/self/cgroup", c.own)
			on.write("proc/self/mountinfo", c.mounts)
			on.write(c.file, c.before)
			m := newMemoryKills(on.root)
			if m.one(0) {
				t.Error("a kill before the start explains an end")
			}
			on.write(c.file, c.after)
			if !m.one(0) || m.one(0) {
				t.Error("one kill must explain exactly one end")
			}
		})
	}
}

// If our own cgroup is not visible, no kill is counted, even if files of another cgroup are visible.
func TestKillsOfAGroupThatIsNotSeenExplainNothing(t *testing.T) {
	for name, c := range map[string]struct{ own, mounts string }{
		"no group":                      {"", mountsV2},
		"no mounts":                     {"0::/job\n", ""},
		"another part is mounted":       {"0::/job\n", "31 23 0:28 /other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
		"moved out of the visible part": {"0::/../other\n", mountsV2},
		"the mount shows a group above our namespace": {"0::/job\n",
			"31 23 0:28 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
		"version 2 has no memory": {"0::/\n", mountsV1},
	} {
		t.Run(name, func(t *testing.T) {
			on := machine{t, t.TempDir()}
			on.write("proc/self/cgroup", c.own)
			on.write("proc/self/mountinfo", c.mounts)
			count := func(text string) {
				for _, file := range []string{"memory.events", "job/memory.events", "other/memory.events", "memory/memory.oom_control"} {
					on.write("sys/fs/cgroup/"+file, text)
				}
			}
			count("oom_kill 0\n")
			m := newMemoryKills(on.root)
			count("oom_kill 1\n")
			if m.one(0) {
				t.Error("a kill in another cgroup explains an end")
			}
		})
	}
	if newMemoryKills(t.TempDir()).one(0) {
		t.Error("there is no cgroup, but a kill explains an end")
	}
}

// A kill before a worker started hit another process, such as a child of an earlier worker. Each
// later kill explains the end of one worker that ran, in whatever order their ends are seen.
func TestAKillBeforeAWorkerStartedDoesNotExplainItsEnd(t *testing.T) {
	on := machine{t, t.TempDir()}
	on.write("proc/self/cgroup", "0::/job\n")
	on.write("proc/self/mountinfo", mountsV2)
	kills := func(n int) { on.write("sys/fs/cgroup/job/memory.events", fmt.Sprintf("oom_kill %d\n", n)) }
	kills(0)
	m := newMemoryKills(on.root)
	kills(1) // a child was killed
	late := m.count()
	if m.one(late) {
		t.Error("a kill before the start explains an end")
	}
	kills(2) // a worker that started before the first kill was killed; its end is seen last
	later := m.count()
	kills(3)
	if !m.one(later) || m.one(later) || !m.one(late) || m.one(late) || !m.one(0) || m.one(0) {
		t.Error("each kill must explain the end of exactly one worker that ran at the time")
	}
}

func TestAWorkersEndIsExplainedOnlyByAKillSinceItsStart(t *testing.T) {
	on := machine{t, t.TempDir()}
	on.write("proc/self/cgroup", "0::/job\n")
	on.write("proc/self/mountinfo", mountsV2)
	kills := func(n int) { on.write("sys/fs/cgroup/job/memory.events", fmt.Sprintf("oom_kill %d\n", n)) }
	kills(0)
	cfg, err := sh("sleep 1000").withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	g := &group{cfg: cfg, out: &output{w: cfg.Out}, err: &output{w: cfg.Err}, oom: newMemoryKills(on.root)}
	g.out.written, g.err.written = &g.written, &g.written
	g.spawner, g.tasks, g.workers = newSpawner(), cfg.makeTasks(), make([]*worker, 1)
	defer g.spawner.stop()
	end := func(before func()) End {
		w, err := g.startWorker(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		before()
		w.signal(syscall.SIGKILL)
		w.wait()
		w.crashed(g.oom)
		return w.end
	}
	kills(1)
	if e := end(func() {}); e.Signal != syscall.SIGKILL || e.Memory {
		t.Errorf("the worker's end was explained by a kill before its start: %+v", e)
	}
	if e := end(func() { kills(2) }); e.Signal != syscall.SIGKILL || !e.Memory {
		t.Errorf("the worker's end was not explained by its kill: %+v", e)
	}
}

func TestAnEndForWantOfMemorySaysSo(t *testing.T) {
	for want, end := range map[string]End{
		"killed by SIGKILL: out of memory": {Signal: syscall.SIGKILL, Memory: true},
		"exit status 137: out of memory":   {Code: 137, Memory: true}, // a shell's code for a child that was killed by SIGKILL
		"killed by SIGKILL":                {Signal: syscall.SIGKILL},
	} {
		if end.Status() != want {
			t.Errorf("the status is %q, want %q", end.Status(), want)
		}
	}
}
