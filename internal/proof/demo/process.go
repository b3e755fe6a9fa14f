package demo

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
)

// process is one process of the job.
type process struct {
	*child.Process        // its name is for example "trainer 1"
	kind           string // trainer | agent | master
}

// processes knows all processes that were ever started, to end them and to add up their CPU time.
type processes struct {
	mu  sync.Mutex
	all []*process
	dir string // of the outputs
}

// start runs argv with env added to ours. Output is appended to <name>.log.
func (ps *processes) start(kind, name string, env []string, argv ...string) (*process, error) {
	started, err := child.Start(ps.dir, name, env, argv...)
	if err != nil {
		return nil, err
	}
	p := &process{started, kind}
	ps.mu.Lock()
	ps.all = append(ps.all, p)
	ps.mu.Unlock()
	return p, nil
}

// died is an error that shows how p ended and the end of its output.
func (p *process) died() error {
	text, _ := os.ReadFile(p.Log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	how := "exit status 0"
	if p.Err != nil {
		how = p.Err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); the end of its output:\n    %s", p.Name, how, bytes.Join(lines, []byte("\n    ")))
}

// givenUp matches the last line of a trainer that was right to end: its watchdog or its agent ended it, or
// it was told that its rows were granted to others.
var givenUp = regexp.MustCompile(`(?m)^(?:headrace: (the agent .+)|headrace\S*\.Fenced: (.+))$`)

// gaveUp is the reason why p was right to end. "": it had no such reason.
func (p *process) gaveUp() string {
	text, _ := os.ReadFile(p.Log)
	all := givenUp.FindAllSubmatch(text[min(p.From, int64(len(text))):], -1)
	if p.Err == nil || len(all) == 0 {
		return ""
	}
	last := all[len(all)-1]
	return string(last[1]) + string(last[2])
}

// stop asks every process of a kind to end. It kills the group of each that has not ended within grace,
// and returns their names.
func (ps *processes) stop(kind string, grace time.Duration) (late []string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	deadline := time.After(grace)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, p := range ps.all {
			if p.kind == kind && !p.Ended() {
				_ = syscall.Kill(-p.Pid(), signal)
				if signal == syscall.SIGKILL {
					late = append(late, p.Name)
				}
			}
		}
		for _, p := range ps.all {
			if p.kind != kind || p.Ended() {
				continue
			}
			if signal == syscall.SIGKILL {
				<-p.Done
				continue
			}
			select {
			case <-p.Done:
			case <-deadline:
				deadline = closed
			}
		}
	}
	return late
}

var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// cpu is the CPU time of the processes of a kind that have ended.
func (ps *processes) cpu(kind string) (used time.Duration) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		if p.kind == kind && p.Ended() {
			used += p.Cmd.ProcessState.UserTime() + p.Cmd.ProcessState.SystemTime()
		}
	}
	return used
}

// checkPython finds the interpreter. Its error says what to do if it cannot run the trainers.
func checkPython(python string) (path, version string, err error) {
	path, err = exec.LookPath(python)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", "", fmt.Errorf("there is no Python at %s (%w); name one with --python or HEADRACE_PYTHON", python, err)
	}
	out, err := exec.Command(path, "-c",
		"import sys, numpy, headrace; print('Python %d.%d.%d, numpy %s' % (*sys.version_info[:3], numpy.__version__))").CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return "", "", fmt.Errorf("%s cannot run the trainers: %s; install the package into it (pip install headrace), or name another interpreter with --python or HEADRACE_PYTHON",
			path, lines[len(lines)-1])
	}
	return path, string(bytes.TrimSpace(out)), nil
}

// checkGroup checks that the interpreter has the package that the consumer group's trainers need.
func checkGroup(python string, q queue) error {
	out, err := exec.Command(python, "-c", "import "+q.module).CombinedOutput()
	if err == nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return fmt.Errorf("%[1]s cannot run the consumer group: %[2]s; install %[3]s into it (pip install %[3]s), or use --no-group", python, lines[len(lines)-1], q.pip)
}
