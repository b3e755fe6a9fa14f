package main

import (
	"strings"
	"testing"
)

func TestRunStartsTheTasksOfAJobsFile(t *testing.T) {
	w := newWorld(t)
	const n = 3000
	w.clicks(n)
	w.write("job.yaml", "specs: [clicks.yaml]\nroles:\n  chief: 1\n  worker: 2\n  evaluator: {count: 1, command: [sh, -c, 'echo evaluated in $PWD']}\n")
	r := w.run("run", "job.yaml", "--", w.self(""))
	if rows, sum := read(t, r.out); r.code != exitOK || rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d, want %d and %d\n%+v", rows, sum, n, n*(n-1)/2, r)
	}
	for _, line := range []string{"[chief] ", "[worker 0] ", "[worker 1] ", "[evaluator] evaluated in " + w.dir} {
		if !strings.Contains(r.out, line) {
			t.Errorf("the tasks' output has no %q:\n%s", line, r.out)
		}
	}
	for _, line := range []string{"[headrace] chief has ended well", "[headrace] worker 1 has ended well", "[headrace] worker 0 runs, pid "} {
		if !strings.Contains(r.err, line) {
			t.Errorf("run's own messages do not have %q:\n%s", line, r.err)
		}
	}
	w.nothingLeft()
}

func TestAJobsFileThatIsWrongIsToldSo(t *testing.T) {
	w := newWorld(t)
	w.clicks(1)
	w.write("wrong.yaml", "roles: {wrker: 1}\n")
	w.write("job.yaml", "roles: {chief: 1}\n")
	for args, says := range map[string]string{
		"run wrong.yaml": "wrong.yaml:1: roles.wrker: no such field in roles; did you mean worker?",
		"run job.yaml":   "job.yaml names no command for chief",
		"run job.yaml --nproc-per-node 2 -- true": "--nproc-per-node does not go with the roles of job.yaml",
	} {
		if r := w.run(strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, says) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s", args, r.code, exitUsage, says, r.err)
		}
	}
}
