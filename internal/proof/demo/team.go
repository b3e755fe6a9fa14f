package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/headrace/headrace/examples/clicks"
	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// The team: two trainers on each of two agents.
const (
	agents      = 2
	trainers    = 4
	batchRows   = 512
	datasetName = "clicks"
	journalName = "trainer-%d-%d.journal" // rank, incarnation
)

// fileRates are in the ratio 10:10:10:1.
var fileRates = [trainers]float64{15_000, 15_000, 15_000, 1_500}

// folders of a run. The sockets have a folder elsewhere, because their paths must be short.
type folders struct {
	root, log, truth, journals, state, outputs, sockets, model string
}

func makeFolders(root string) (folders, error) {
	f := folders{
		root: root, log: filepath.Join(root, "log"), truth: filepath.Join(root, "truth"),
		journals: filepath.Join(root, "journals"), state: filepath.Join(root, "state"), outputs: filepath.Join(root, "outputs"),
	}
	for _, dir := range []string{f.log, f.truth, f.journals, f.state, f.outputs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return f, err
		}
	}
	var err error
	f.sockets, err = os.MkdirTemp("", "headrace-demo-")
	if err != nil {
		return f, err
	}
	// The model must outlive the trainers; it is a file in memory.
	f.model = filepath.Join(f.sockets, "model")
	if dir, err := os.MkdirTemp("/dev/shm", "headrace-demo-"); err == nil {
		f.model = filepath.Join(dir, "model")
	}
	return f, os.WriteFile(filepath.Join(root, "train.py"), clicks.Trainer, 0o600)
}

// remove removes the sockets and models. The root folder is removed by its owner.
func (f folders) remove() {
	_ = os.RemoveAll(f.sockets)
	models, _ := filepath.Glob(f.model + "*") // also those of the consumer groups
	for _, m := range models {
		_ = os.Remove(m)
	}
	_ = os.Remove(filepath.Dir(f.model))
}

// team starts the processes of the job, and starts them again.
type team struct {
	folders
	processes
	binary, python string
	address        string            // of the master
	rates          [trainers]float64 // rows/s of the trainers' paces
	maxWait        time.Duration     // how long to wait for a full batch; 0: for ever
	dataset        string            // its spec
	master         *process
	agents         [agents]*process
	trainers       [trainers]*process
	lives          [trainers]int
	gaveUp         [trainers]int // how often each trainer has given up
}

func (t *team) startMaster() (err error) {
	t.master, err = t.start("master", "master", nil, t.binary, "master",
		"--job", "demo", "--model", "shared", "--state", t.state, "--listen", t.address, "--http", "127.0.0.1:0", "--allow-root", t.log)
	return err
}

func (t *team) socket(k int) string { return filepath.Join(t.sockets, fmt.Sprintf("a%d.sock", k+1)) }

func (t *team) startAgent(k int) (err error) {
	name := agentName(k)
	t.agents[k], err = t.start("agent", name, nil, t.binary, "agent",
		"--job", "demo", "--name", name, "--state", t.state, "--master", t.address, "--socket", t.socket(k), "--allow-root", t.log)
	return err
}

func agentName(k int) string { return "agent-" + strconv.Itoa(k+1) }

// agentOf is the agent of a rank.
func agentOf(rank int) int { return rank / (trainers / agents) }

func (t *team) startTrainer(rank int) (err error) {
	t.lives[rank]++
	journal := filepath.Join(t.journals, fmt.Sprintf(journalName, rank, t.lives[rank]))
	env := []string{
		"HEADRACE_JOB=demo", "HEADRACE_AGENT=" + t.socket(agentOf(rank)),
		"HEADRACE_RANK=" + strconv.Itoa(rank), "HEADRACE_WORLD_SIZE=" + strconv.Itoa(trainers),
		"HEADRACE_ATTEMPT=" + strconv.Itoa(t.lives[rank]-1),
		"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONUNBUFFERED=1",
	}
	argv := []string{t.python, filepath.Join(t.root, "train.py"),
		"--dataset", datasetName, "--model", t.model, "--rows", strconv.Itoa(batchRows),
		"--rate", strconv.FormatFloat(t.rates[rank], 'f', -1, 64), "--journal", journal}
	if t.maxWait > 0 {
		argv = append(argv, "--max-wait", strconv.FormatFloat(t.maxWait.Seconds(), 'f', -1, 64))
	}
	t.trainers[rank], err = t.start("trainer", trainerName(rank), env, argv...)
	return err
}

func trainerName(rank int) string { return "trainer-" + strconv.Itoa(rank) }

// startAll starts master, agents, dataset and trainers. It waits until each answers before it starts the
// next.
func (t *team) startAll(ctx context.Context, l *ledger) error {
	if err := t.startMaster(); err != nil {
		return err
	}
	if err := answer(ctx, t.master, l.waitForMaster); err != nil {
		return err
	}
	if err := l.apply(ctx, t.dataset); err != nil {
		return fmt.Errorf("applying the dataset: %w", err)
	}
	for k := range t.agents {
		if err := t.startAgent(k); err != nil {
			return err
		}
	}
	for k, p := range t.agents {
		if err := t.agentAnswers(ctx, l, k, p); err != nil {
			return err
		}
	}
	for rank := range t.trainers {
		if err := t.startTrainer(rank); err != nil {
			return err
		}
	}
	return nil
}

func (t *team) agentAnswers(ctx context.Context, l *ledger, k int, p *process) error {
	return answer(ctx, p, func(ctx context.Context) error { return l.waitForAgent(ctx, agentName(k), p.Pid()) })
}

// trainerReads waits until the process of a rank has read something, or has ended. follow judges such an
// end.
func (t *team) trainerReads(ctx context.Context, l *ledger, rank int) error {
	p := t.trainers[rank]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reads := make(chan error, 1)
	go func() { reads <- l.waitForTrainer(ctx, rank, p.Pid()) }() // ends with ctx
	select {
	case err := <-reads:
		return err
	case <-p.Done:
		return nil
	}
}

// answersWithin only ends a hang: on a busy machine a start takes long.
const answersWithin = 2 * time.Minute

// answer returns when wait does. It is an error if p ends before, or if it takes too long.
func answer(ctx context.Context, p *process, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- wait(ctx) }() // ends with ctx
	select {
	case err := <-answered:
		if err != nil {
			err = fmt.Errorf("%s does not answer: %w", p.Name, err)
		}
		return err
	case <-p.Done:
		return p.died()
	}
}

// datasetYAML is the spec that a user would write for the log.
func datasetYAML(root string) string {
	return fmt.Sprintf(`name: %s
files: {root: %q, paths: ["*.tsv"]}
`, datasetName, root) + decodeYAML()
}

// decodeYAML says how a record of the log becomes columns.
func decodeYAML() string {
	return fmt.Sprintf(`decode:
  format: tsv
  columns:
    - {name: label, path: "0", dtype: float32}
    - {name: dense, paths: ["1..%d"], dtype: float32, default: "%d"}
    - {name: cat, paths: ["%d..%d"], dtype: int64, default: 0, hash: {buckets: %d, salt: %s}}
`, clicklog.Ints, clicklog.Missing, clicklog.Ints+1, clicklog.Ints+clicklog.Categories, clicklog.Buckets, clicklog.Salt)
}
