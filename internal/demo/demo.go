package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/demo/clicklog"
	"github.com/headrace/headrace/internal/demo/report"
)

// Options are the flags of `headrace demo`.
type Options struct {
	Records int
	Seed    uint64
	Dir     string // "": a temporary one
	Keep    bool
	Report  string // file of the JSON report
	Kills   bool
	Python  string // interpreter that has headrace and numpy
}

const (
	tick  = 250 * time.Millisecond
	stuck = time.Minute     // without one more row applied, the demo gives up
	grace = 5 * time.Second // between SIGTERM and SIGKILL
)

// Run runs the demo and writes its story to out. When it returns, no process,
// socket or temporary folder of it is left, whatever happened. An error is also
// what a report that is not clean ends with.
func Run(ctx context.Context, o Options, out io.Writer) error {
	s := newStory(out)
	s.say("Headrace: four trainers, one input, one model. A trainer, an agent and the master will be killed.")
	root, err := o.folder()
	if err != nil {
		return err
	}
	if !o.Keep {
		defer func() { _ = os.RemoveAll(root) }()
	}
	python, version, err := checkPython(o.Python)
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	dirs, err := makeFolders(root)
	if err != nil {
		return err
	}
	defer dirs.remove()
	if err := writeLog(ctx, s, o, dirs); err != nil {
		return err
	}

	t := &team{folders: dirs, processes: processes{dir: dirs.outputs}, binary: binary, python: python, address: address}
	defer t.stopAll(s)
	books, err := newLedger(address)
	if err != nil {
		return err
	}
	defer books.close()
	if err := t.startAll(ctx, books); err != nil {
		return interrupted(ctx, err)
	}
	s.say("started a master (process %d), two agents and four trainers (%s),", t.master.pid(), version)
	s.say("two on each agent, paced to 15,000, 15,000, 15,000 and 1,500 rows/s")
	k := &killer{team: t, tell: s, books: books}
	started := time.Now()
	if err := follow(ctx, o, k); err != nil {
		return interrupted(ctx, err)
	}
	took := time.Since(started)
	settled, listed, err := books.settled(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	t.stopAll(s)
	s.say("end of data; in the master's books %s of %s bytes are settled", report.Thousands(int(settled)), report.Thousands(int(listed)))
	s.say("and this is what the trainers' own journals say, without asking it:")

	r, err := report.FromFolders(dirs.truth, dirs.journals)
	if err != nil {
		return err
	}
	r.CPU = t.cpuShares(took)
	if err := r.Write(o.Report); err != nil {
		return err
	}
	s.plain(r.Print)
	if !r.Clean {
		return fmt.Errorf("the report is not clean: see %s", o.Report)
	}
	s.say("report: %s%s", o.Report, kept(o, root))
	s.plain(func(out io.Writer) { _, _ = fmt.Fprintln(out, nextCommand(binary, o.Python)) })
	return nil
}

// nextCommand is the last line: the same on the user's own files.
func nextCommand(binary, python string) string {
	const example = "examples/clicks/"
	if _, err := os.Stat(example + "clicks.yaml"); err != nil {
		return "Next, on your own files (github.com/headrace/headrace, examples/clicks/README.md):\n" +
			"  headrace run --nproc-per-node 2 -f clicks.yaml -- " + python + " train.py"
	}
	return "Next, on your own files: put their folder into " + example + "clicks.yaml, then\n  " +
		fromHere(binary) + " run --nproc-per-node 2 -f " + example + "clicks.yaml -- " +
		fromHere(python) + " " + example + "train.py"
}

// fromHere is a path as one would type it in this folder.
func fromHere(path string) string {
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(short) {
			return short
		}
	}
	return path
}

func kept(o Options, root string) string {
	if !o.Keep {
		return ""
	}
	return "; everything else is kept in " + root
}

// folder makes the folder of this run: a temporary one, or o.Dir, which must not
// hold a run already.
func (o Options) folder() (string, error) {
	if o.Dir == "" {
		return os.MkdirTemp("", "headrace-demo-")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	if found, err := os.ReadDir(dir); err == nil && len(found) > 0 {
		return "", fmt.Errorf("%s is not empty; name a new folder with --dir", dir)
	}
	return dir, os.MkdirAll(dir, 0o700)
}

func writeLog(ctx context.Context, s *story, o Options, dirs folders) error {
	var fs unix.Statfs_t
	need := clicklog.EstimatedBytes(o.Records)
	if err := unix.Statfs(dirs.root, &fs); err == nil && int64(fs.Bavail)*fs.Bsize < need {
		return fmt.Errorf("%s has %d MB free and the click log takes %d MB; name another folder with --dir, or fewer --records",
			dirs.root, int64(fs.Bavail)*fs.Bsize>>20, need>>20)
	}
	s.say("writing a click log of %s records (Criteo's layout, Zipf ids, a drift half way, seed %d) ...", report.Thousands(o.Records), o.Seed)
	start := time.Now()
	m, err := clicklog.Write(ctx, clicklog.Options{LogDir: dirs.log, TruthDir: dirs.truth, Records: o.Records, Seed: o.Seed})
	if err != nil {
		return interrupted(ctx, err)
	}
	s.say("%d files, %d MB, in %.1f s: %s", len(m.Files), m.Bytes>>20, time.Since(start).Seconds(), dirs.log)
	return nil
}

// follow shows progress and kills by plan until all trainers have seen the end
// of data.
func follow(ctx context.Context, o Options, k *killer) error {
	w := newWatch(k.team.journals, o.Records)
	defer w.close()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	ctx, cancel := context.WithCancel(ctx)
	killing := make(chan error, 1)
	busy := false
	defer func() { // a killer at work may start a process: it ends before we do
		cancel()
		if busy {
			<-killing
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-killing:
			if busy = false; err != nil {
				return err
			}
		case <-ticker.C:
		}
		applied, err := w.look()
		if err != nil {
			return err
		}
		k.tell.progress(w.line())
		if busy {
			continue // whoever is dead now was killed by us
		}
		done, gaveUp, err := k.team.trained()
		if done || err != nil {
			return err
		}
		for _, rank := range gaveUp {
			if err := k.startAgain(rank); err != nil {
				return err
			}
		}
		if time.Since(w.changed) > stuck {
			return fmt.Errorf("no trainer has applied a row for %v; with --keep the outputs of all processes stay in %s", stuck, k.team.outputs)
		}
		if o.Kills {
			busy = true
			share := float64(applied) / float64(o.Records)
			go func() { killing <- k.next(ctx, share) }() // ends with ctx
		}
	}
}

// trained says whether all trainers have ended well, and which have given up
// (see maxGaveUp); anybody else's end, or a bad one, is an error.
func (t *team) trained() (all bool, gaveUp []int, err error) {
	for _, p := range append(t.agents[:], t.master) {
		if p.ended() {
			return false, nil, p.died()
		}
	}
	all = true
	for rank, p := range t.trainers {
		switch {
		case !p.ended():
			all = false
		case p.err == nil:
		case p.gaveUp() != "" && t.gaveUp[rank] < maxGaveUp:
			all = false
			gaveUp = append(gaveUp, rank)
		default:
			return false, nil, p.died()
		}
	}
	return all, gaveUp, nil
}

// stopAll ends whatever still runs: trainers, agents, master. Twice does no harm.
func (t *team) stopAll(s *story) {
	for _, kind := range []string{"trainer", "agent", "master"} {
		for _, name := range t.stop(kind, grace) {
			s.say("%s did not end in %v after SIGTERM and was killed", name, grace)
		}
	}
}

// cpuShares is what each kind of process used, of all cores, while trainers ran.
func (t *team) cpuShares(took time.Duration) map[string]float64 {
	all := took.Seconds() * float64(runtime.NumCPU())
	shares := map[string]float64{}
	for _, kind := range []string{"trainer", "agent", "master"} {
		shares[kind] = t.cpu(kind).Seconds() / all
	}
	return shares
}

// interrupted says Ctrl-C where that is the reason.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; all processes are ended and temporary files removed")
	}
	return err
}
