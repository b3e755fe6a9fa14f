package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// played runs a cluster of shells. At each start, a shell writes its TF_CONFIG and rank into a file
// named role-index-number.
type played struct {
	t      *testing.T
	cfg    Config
	folder string
	events *lines
	done   chan error
}

// A task writes its file, then waits for the file `role-index.do` and runs the text in it, such as
// "exit 3".
const play = `
set -e
role=${TF_CONFIG##*'"type":"'}; role=${role%%'"'*}
index=${TF_CONFIG##*'"index":'}; index=${index%%'}'*}
name=$role-$index
n=1; while [ -e "$FOLDER/$name-$n" ]; do n=$((n+1)); done
echo "$$ ${RANK-none} ${WORLD_SIZE-none} ${HEADRACE_ENDS_SERVERS-none} $TF_CONFIG" >"$FOLDER/.$name-$n"; mv "$FOLDER/.$name-$n" "$FOLDER/$name-$n"
while :; do
  if [ -e "$FOLDER/$name.do" ]; then do=$(cat "$FOLDER/$name.do"); rm "$FOLDER/$name.do"; eval "$do"; fi
  sleep 0.02
done
`

func newCluster(t *testing.T, roles ...Role) *played {
	p := &played{t: t, folder: t.TempDir(), events: newLines(), done: make(chan error, 1)}
	var mu sync.Mutex
	p.cfg = sh(play)
	p.cfg.Env = append(os.Environ(), "FOLDER="+p.folder)
	p.cfg.Roles, p.cfg.Model, p.cfg.MaxRestarts = roles, Shared, 100
	p.cfg.Event = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = p.events.Write([]byte(line + "\n"))
	}
	return p
}

func (p *played) run(ctx context.Context) *played {
	go func() { p.done <- Run(ctx, p.cfg) }()
	return p
}

// start has the values that a task wrote when it started.
type start struct {
	pid         int
	rank, world string
	stays       bool // it stays until it is ended
	config      struct {
		Cluster map[string][]string
		Task    struct {
			Type  string
			Index int
		}
	}
}

// started waits for the n-th start of a task.
func (p *played) started(name string, n int) start {
	p.t.Helper()
	path := filepath.Join(p.folder, name+"-"+strconv.Itoa(n))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	after := time.After(patience)
	for {
		if text, err := os.ReadFile(path); err == nil {
			words := strings.SplitN(strings.TrimSpace(string(text)), " ", 5)
			var s start
			s.pid, _ = strconv.Atoi(words[0])
			s.rank, s.world, s.stays = words[1], words[2], words[3] == "1"
			if err := json.Unmarshal([]byte(words[4]), &s.config); err != nil {
				p.t.Fatal(err)
			}
			return s
		}
		select {
		case <-tick.C:
		case <-after:
			p.t.Fatalf("%s did not start %d times in time:\n%s", name, n, p.events)
		}
	}
}

func (p *played) starts(name string) int {
	found, _ := filepath.Glob(filepath.Join(p.folder, name+"-[0-9]*"))
	return len(found)
}

func (p *played) tell(name, what string) {
	p.t.Helper()
	path := filepath.Join(p.folder, name+".do")
	if err := errors.Join(os.WriteFile(path+".new", []byte(what), 0o600), os.Rename(path+".new", path)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *played) ends() error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(patience):
		p.t.Fatalf("the cluster did not end in time:\n%s", p.events)
		return nil
	}
}

var all = []Role{{Name: PS, Count: 1}, {Name: Chief, Count: 1}, {Name: Worker, Count: 2}, {Name: Evaluator, Count: 1}}

func TestEachTaskGetsItsTFConfig(t *testing.T) {
	p := newCluster(t, all...).run(t.Context())
	ranks := map[string]string{"ps-0": "none", "chief-0": "0", "worker-0": "1", "worker-1": "2", "evaluator-0": "none"}
	var cluster map[string][]string
	for _, name := range slices.Sorted(maps.Keys(ranks)) {
		s := p.started(name, 1)
		world := "3"
		if s.rank == "none" {
			world = "none"
		}
		if s.rank != ranks[name] || s.world != world || s.stays != (name == "ps-0") || name != s.config.Task.Type+"-"+strconv.Itoa(s.config.Task.Index) {
			t.Errorf("%s started with %+v, want rank %s of %s", name, s, ranks[name], world)
		}
		if cluster != nil && !maps.EqualFunc(cluster, s.config.Cluster, slices.Equal) {
			t.Errorf("%s has the cluster %v, the task before it has %v", name, s.config.Cluster, cluster)
		}
		cluster = s.config.Cluster
	}
	if len(cluster[PS]) != 1 || len(cluster[Chief]) != 1 || len(cluster[Worker]) != 2 || len(cluster) != 3 {
		t.Errorf("the cluster is %v, want 1 ps, 1 chief and 2 workers", cluster)
	}
	p.events.await(t, 1, "worker 1 runs, pid "+strconv.Itoa(p.started("worker-1", 1).pid))
	for _, name := range []string{"worker-0", "worker-1", "chief-0"} {
		p.tell(name, "exit 0")
	}
	p.events.await(t, 1, "ps 0 has ended")
	p.tell("evaluator-0", "exit 0")
	if err := p.ends(); err != nil {
		t.Error(err)
	}
}

func TestAWorkerAndAChiefAndAnEvaluatorStartAgainAlone(t *testing.T) {
	p := newCluster(t, all...).run(t.Context())
	for _, name := range []string{"worker-1", "chief-0", "evaluator-0"} {
		first := p.started(name, 1)
		if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if second := p.started(name, 2); !maps.EqualFunc(first.config.Cluster, second.config.Cluster, slices.Equal) || second.rank != first.rank {
			t.Errorf("%s started with %+v, and again with %+v; rank and cluster must stay", name, first, second)
		}
	}
	p.events.await(t, 1, "worker 1: killed by SIGKILL; it starts again alone, restart 1 of 100")
	for _, name := range []string{"ps-0", "worker-0"} {
		p.started(name, 1) // on a busy machine a task that runs may not have written its file yet
		if n := p.starts(name); n != 1 {
			t.Errorf("%s started %d times, want once", name, n)
		}
	}
	for _, name := range []string{"worker-0", "worker-1", "chief-0", "evaluator-0"} {
		p.tell(name, "exit 0")
	}
	if err := p.ends(); err != nil {
		t.Error(err)
	}
}

// When a server is lost, all tasks that train start again from a checkpoint. A worker that has ended
// well starts again too, because the records after the checkpoint come again.
func TestTheLossOfAServerTakesAllThatTrainBack(t *testing.T) {
	p := newCluster(t, all...).run(t.Context())
	for _, name := range []string{"chief-0", "worker-0", "worker-1", "evaluator-0"} { // one that is ended before it has written its file has no first start
		p.started(name, 1)
	}
	p.tell("worker-0", "exit 0")
	p.events.await(t, 1, "worker 0 has ended well")
	first := p.started("ps-0", 1)
	p.tell("ps-0", "exit 0") // a server that ends before the job counts as lost, even with status 0
	for _, name := range []string{"ps-0", "chief-0", "worker-0", "worker-1"} {
		if s := p.started(name, 2); s.config.Cluster[PS][0] == first.config.Cluster[PS][0] {
			t.Errorf("%s has the address of the lost server", name)
		}
	}
	p.events.await(t, 1, "ps 0: exit status 0; the model is lost with it")
	if n := p.starts("evaluator-0"); n != 1 {
		t.Errorf("the evaluator started %d times, want once", n)
	}
	for _, name := range []string{"worker-0", "worker-1", "chief-0", "evaluator-0"} {
		p.tell(name, "exit 0")
	}
	if err := p.ends(); err != nil {
		t.Error(err)
	}
}

func TestAWorkerThatFailsAfterTheChiefsEndDoesNotStartAgain(t *testing.T) {
	p := newCluster(t, all[:3]...).run(t.Context())
	p.started("worker-0", 1)
	p.tell("chief-0", "exit 0")
	p.events.await(t, 1, "chief has ended well")
	p.tell("worker-0", "exit 75")
	p.events.await(t, 1, "worker 0: exit status 75; the chief has ended well, so nothing is left to train")
	p.tell("worker-1", "exit 0")
	if err := p.ends(); err != nil {
		t.Error(err)
	}
	if n := p.starts("worker-0"); n != 1 {
		t.Errorf("the worker started %d times, want once", n)
	}
}

func TestWhatWouldOnlyFailAgainStopsTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		do, says string
		restarts int
	}{
		"an error of a checkpoint": {`echo CheckpointError >"$HEADRACE_ENDED_BY"; exit 1`, "a new start would meet the same error of a checkpoint: the job stops", 100},
		"no restart is left":       {"exit 3", "worker 1: exit status 3; all 0 restarts are used (max_restarts): the job stops", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newCluster(t, all...)
			p.cfg.MaxRestarts = c.restarts
			p.run(t.Context())
			p.started("worker-1", 1)
			p.tell("worker-1", c.do)
			failed, ok := errors.AsType[*Failed](p.ends())
			if !ok || failed.Ends[0].Task != "worker 1" || !strings.Contains(p.events.String(), c.says) {
				t.Errorf("the job ended with %v, want a failure of worker 1 and %q in\n%s", failed, c.says, p.events)
			}
		})
	}
}

func TestASignalEndsAllTasks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := newCluster(t, all...).run(ctx)
	for _, name := range []string{"ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0"} {
		p.started(name, 1)
	}
	cancel()
	if failed, ok := errors.AsType[*Failed](p.ends()); !ok || failed.ExitCode() != 128+15 {
		t.Errorf("after a signal the run ended with %v, want exit code 143", failed)
	}
}
