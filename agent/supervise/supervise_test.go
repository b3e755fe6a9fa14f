package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/internal/proof/leaks"
)

func TestMain(m *testing.M) {
	if signal.Ignored(os.Interrupt) { // a shell ignores it for background jobs, and then a worker's own trap has no effect
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	leaks.Main(m)
}

// lines collects output and lets a test wait for a line.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	sig chan struct{}
}

// patience is longer than any step of a test takes on a busy machine.
const patience = 5 * time.Minute

func newLines() *lines { return &lines{sig: make(chan struct{}, 1)} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.sig <- struct{}{}:
	default:
	}
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) await(t *testing.T, n int, text string) {
	t.Helper()
	after := time.After(patience)
	for strings.Count(l.String(), text) < n {
		select {
		case <-l.sig:
		case <-after:
			t.Fatalf("%q did not come %d times in time; the output is\n%s", text, n, l)
		}
	}
}

func sh(script string) Config {
	out := newLines()
	return Config{Cmd: []string{"/bin/sh", "-c", script}, Out: out, Err: out, Signals: make(chan os.Signal, 2), Grace: patience}
}

// A timer that was to be set when the group is asked to end was once made with an hour to run, and
// killed all trainers after an hour.
func TestWorkersRunAsLongAsTheyWant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fires := func(g *group) bool {
			time.Sleep(1000 * time.Hour)
			select {
			case <-g.kill.C:
				return true
			case <-g.cluster.late.C:
				return true
			default:
				return false
			}
		}
		g := newGroup(Config{Model: Replicated, Grace: time.Second, Backoff: func(int) time.Duration { return 0 }, Logger: slog.New(slog.DiscardHandler)})
		if fires(g) {
			t.Error("workers that nobody has asked to end are killed")
		}
		g.stop(syscall.SIGTERM)
		if !fires(g) {
			t.Error("workers that were asked to end and do not are not killed")
		}
		g.stop(syscall.SIGTERM)
		g.failed = []End{{}}
		if err := g.startAgain(); err != nil {
			t.Fatal(err)
		}
		if fires(g) {
			t.Error("workers that were started again are killed")
		}
	})
}

func TestEachRankGetsTorchrunsEnvironmentAndItsPrefix(t *testing.T) {
	cfg := sh(`echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $((MASTER_PORT > 0)) $HEADRACE_AGENT $HEADRACE_ATTEMPT"`)
	cfg.NProcPerNode, cfg.NNodes, cfg.NodeRank, cfg.Socket = 2, 2, 1, "/tmp/x.sock"
	cfg.MasterAddr, cfg.MasterPort = "10.0.0.1", 29500
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[2] 2 0 4 2 10.0.0.1 1 /tmp/x.sock 0\n", "[3] 3 1 4 2 10.0.0.1 1 /tmp/x.sock 0\n"} {
		if got := cfg.Out.(*lines).String(); !strings.Contains(got, want) {
			t.Errorf("the output has no line %q:\n%s", want, got)
		}
	}
}

// A task listens on its port only seconds after the port was chosen. Meanwhile the system may give any
// port from 32768 on to an outgoing connection. So the port must be a lower one.
func TestMasterPortIsNoneThatTheSystemGivesAway(t *testing.T) {
	for range 20 {
		cfg := sh(`echo "port $((MASTER_PORT >= 20000 && MASTER_PORT < 32000))"`)
		cfg.NProcPerNode = 1
		if err := Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if got := cfg.Out.(*lines).String(); !strings.Contains(got, "port 1\n") {
			t.Fatalf("MASTER_PORT is not from 20000 to 31999:\n%s", got)
		}
	}
}

func TestASharedJobRestartsOnlyTheFailedWorker(t *testing.T) {
	cfg := sh(`echo "start $RANK $HEADRACE_ATTEMPT"; if [ $RANK = 1 ] && [ $HEADRACE_ATTEMPT = 0 ]; then exit 3; fi`)
	cfg.NProcPerNode, cfg.MaxRestarts, cfg.Model = 3, 1, Shared
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	out := cfg.Out.(*lines).String()
	if strings.Count(out, "start") != 4 || !strings.Contains(out, "start 1 1\n") {
		t.Errorf("output:\n%s", out)
	}
}

func TestAReplicatedJobRestartsTheWholeGroup(t *testing.T) {
	cfg := sh(`echo "start $RANK $HEADRACE_ATTEMPT"; if [ $HEADRACE_ATTEMPT = 0 ]; then [ $RANK = 1 ] && exit 3; exec sleep 60; fi`)
	cfg.NProcPerNode, cfg.MaxRestarts = 3, 1
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	out := cfg.Out.(*lines).String()
	for rank := range 3 {
		if !strings.Contains(out, fmt.Sprintf("start %d 1\n", rank)) {
			t.Errorf("rank %d was not started again:\n%s", rank, out)
		}
	}
}

// The summary has the last lines of the rank that failed first, even if other ranks wrote much after them.
func TestTheSummaryNamesRankStatusAndLastLines(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	cfg := sh(`if [ $RANK = 1 ]; then
		while [ ! -e ` + ready + ` ]; do sleep 0.01; done
		for i in $(seq 30); do echo "line $i" >&2; done; exit 3
	fi
	trap 'seq 30; exit 0' TERM; touch ` + ready + `; while :; do sleep 0.01; done`)
	cfg.NProcPerNode, cfg.Model = 2, Private
	err := Run(t.Context(), cfg)
	failed, ok := errors.AsType[*Failed](err)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	first := failed.Ends[0]
	if first.Rank != 1 || first.Code != 3 || failed.ExitCode() != 3 || len(first.Stderr) != keptLines || first.Stderr[keptLines-1] != "line 30" {
		t.Errorf("the failure is %+v", failed)
	}
	if text := err.Error(); !strings.Contains(text, "rank 1") || !strings.Contains(text, "exit status 3") || !strings.Contains(text, "line 30") {
		t.Errorf("summary:\n%s", text)
	}
}

func TestADeathBySignalIsNamed(t *testing.T) {
	cfg := sh(`kill -9 $$`)
	failed, ok := errors.AsType[*Failed](Run(t.Context(), cfg))
	if !ok || failed.Ends[0].Signal != syscall.SIGKILL || !strings.Contains(failed.Error(), "killed by SIGKILL") || failed.ExitCode() != 128+9 {
		t.Fatalf("%v", failed)
	}
}

func TestTheFirstSignalIsForwardedAndTheSecondKills(t *testing.T) {
	signals := make(chan os.Signal, 2)
	cfg := sh(`trap 'echo got it' INT; echo ready; while :; do sleep 0.05; done`)
	cfg.Signals, cfg.NProcPerNode, cfg.Grace = signals, 2, time.Minute
	out := cfg.Out.(*lines)
	done := make(chan error, 1)
	go func() { done <- Run(context.Background(), cfg) }()
	out.await(t, 2, "ready")
	signals <- syscall.SIGINT
	out.await(t, 2, "got it")
	signals <- syscall.SIGINT
	failed, ok := errors.AsType[*Failed](<-done)
	if !ok || len(failed.Ends) != 2 || failed.ExitCode() != 130 {
		t.Fatalf("%v", failed)
	}
}

func TestAfterGraceAGroupThatDoesNotListenIsKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := sh(`trap '' TERM; echo ready; while :; do sleep 0.05; done`)
	cfg.Grace = 100 * time.Millisecond
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	cfg.Out.(*lines).await(t, 1, "ready")
	cancel()
	failed, ok := errors.AsType[*Failed](<-done)
	if !ok || failed.Ends[0].Signal != syscall.SIGKILL {
		t.Fatalf("%v", failed)
	}
}

func TestNothingThatAWorkerHasStartedIsLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	cfg := sh(`sleep 100000 & echo $! > ` + file + `; exit 0`) // the worker does not wait for its child
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pid)
}

// awaitGone waits until pid is no process any more, or only an unreaped one.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	after := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-after:
			t.Fatalf("process %d still lives: %s", pid, stat)
		}
	}
}

// When the supervisor is killed, it cannot end its workers. The kernel does.
func TestWorkersEndWhenTheirSupervisorIsKilled(t *testing.T) {
	if os.Getenv("HEADRACE_TEST_SUPERVISE") != "" {
		err := Run(context.Background(), Config{Cmd: []string{"/bin/sh", "-c", `echo "pid=$$"; exec sleep 300`}})
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWorkersEndWhenTheirSupervisorIsKilled$")
	cmd.Env = append(os.Environ(), "HEADRACE_TEST_SUPERVISE=1")
	out := newLines()
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, 1, "pid=")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	_, after, _ := strings.Cut(out.String(), "pid=")
	pid, err := strconv.Atoi(strings.TrimSpace(after))
	if err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pid)
}

func TestLinesAreBoundedAndNeverMixed(t *testing.T) {
	out := newLines()
	to := &output{w: out, written: &atomic.Int64{}}
	var wg sync.WaitGroup
	for rank := range 4 {
		wg.Go(func() {
			p := newPrefixed(to, strconv.Itoa(rank), 0)
			text := strings.Repeat(strconv.Itoa(rank), maxLine+10) + "\n" + strings.Repeat(strconv.Itoa(rank), 5)
			for i := 0; i < len(text); i += 1000 {
				if n, err := p.Write([]byte(text[i:min(len(text), i+1000)])); err != nil || n == 0 {
					t.Error(n, err)
				}
			}
			p.flush()
		})
	}
	wg.Wait()
	got := map[string]int{}
	for l := range strings.Lines(out.String()) {
		prefix, rest, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "] ")
		if !ok || strings.Trim(rest, prefix[1:]) != "" {
			t.Fatalf("a line has output of two ranks: %.80q", l)
		}
		got[prefix] += len(rest)
	}
	for rank := range 4 {
		if n := got["["+strconv.Itoa(rank)]; n != maxLine+15 {
			t.Errorf("rank %d printed %d bytes", rank, n)
		}
	}
}

// tqdm writes each state of its bar over the last one. It does not end a line before the end.
func TestABarOfProgressIsSeenWhileItMoves(t *testing.T) {
	for _, traced := range []bool{false, true} {
		out := newLines()
		p := newPrefixed(&output{w: out, written: &atomic.Int64{}}, "0", keptLines)
		if traced {
			p.trace = &tracer{}
		}
		for _, c := range []struct{ write, shown string }{
			{"begins\n", "[0] begins\n"},
			{"\r 10%", ""},
			{"\r 20%", "[0]  10%\r"},
			{"\r", ""},
			{"100%\r\n", "[0]  20%\r[0] 100%\n"},
			{"a\r", ""},
			{"\nb\r\nc", "[0] a\n[0] b\n"},
			{"\r", ""},
		} {
			before := out.String()
			if _, err := p.Write([]byte(c.write)); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimPrefix(out.String(), before); got != c.shown {
				t.Errorf("traced %v: after %q it passes on %q, want %q", traced, c.write, got, c.shown)
			}
		}
		p.flush()
		if got := out.String(); !strings.HasSuffix(got, "[0] c\n") {
			t.Errorf("traced %v: the end is %q", traced, got)
		}
		if got := strings.Join(p.last(), "|"); got != "begins|100%|a|b|c" {
			t.Errorf("traced %v: the last lines are %q", traced, got)
		}
	}
}

// Slurm, for example, can send SIGUSR1 some time before it ends a job, so that its trainers save.
func TestSignalsOfUsersGoToTheWorkers(t *testing.T) {
	out := newLines()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Config{NProcPerNode: 2, Out: out, Err: out, Cmd: []string{"/bin/sh", "-c", `
			/bin/sh -c "while :; do sleep 0.01; done" & # the signals would end it
			trap "kill -0 $! && echo one" USR1; trap "kill $! && echo two; exit 0" USR2; echo ready; while :; do sleep 0.01; done`}})
	}()
	out.await(t, 2, "ready")
	for _, s := range []struct {
		signal syscall.Signal
		says   string
	}{{syscall.SIGUSR1, "one"}, {syscall.SIGUSR2, "two"}} {
		if err := syscall.Kill(os.Getpid(), s.signal); err != nil {
			t.Fatal(err)
		}
		out.await(t, 2, s.says)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeStartedIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no command":  {Config{}, "no command"},
		"no program":  {Config{Cmd: []string{"no-such-program"}}, `no program "no-such-program"`},
		"model":       {Config{Cmd: []string{"true"}, Model: "x"}, `model "x"`},
		"master addr": {Config{Cmd: []string{"true"}, NNodes: 2}, "--master-addr"},
		"node rank":   {Config{Cmd: []string{"true"}, NodeRank: 1}, "--node-rank"},
	} {
		if err := Run(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the run ended with %v, want %q", name, err, c.want)
		}
	}
}

// The program is missing when a worker must start again, for example in the middle of an upgrade.
// Then the run ends. Otherwise the other workers would run for hours, and no signal would reach them.
func TestAWorkerThatCannotStartAgainEndsTheOthers(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Millisecond} {
		program := filepath.Join(t.TempDir(), "train")
		script := "#!/bin/sh\ntrap 'echo ends $RANK; exit 0' TERM\necho runs $RANK\nif [ $RANK = 0 ]; then read x <\"$0.go\"; rm \"$0\"; exit 3; fi\nwhile :; do sleep 0.02; done\n"
		if err := errors.Join(os.WriteFile(program, []byte(script), 0o700), syscall.Mkfifo(program+".go", 0o600)); err != nil {
			t.Fatal(err)
		}
		cfg := sh("")
		cfg.Cmd, cfg.NProcPerNode, cfg.MaxRestarts, cfg.Model = []string{program}, 2, 5, Shared
		cfg.Backoff = func(int) time.Duration { return pause }
		done := make(chan error, 1)
		go func() { done <- Run(t.Context(), cfg) }()
		out := cfg.Out.(*lines)
		out.await(t, 1, "runs 1")
		if err := os.WriteFile(program+".go", []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
		out.await(t, 1, "ends 1")
		if err := <-done; !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "start rank 0") {
			t.Errorf("after a pause of %v the run ended with %v, want a missing program of rank 0", pause, err)
		}
	}
}
