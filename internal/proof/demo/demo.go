package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/demo/report"
	"github.com/headrace/headrace/internal/proof/testbroker"
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
	Source  string // files, or one of queues
	Group   bool   // with a topic: run consumer groups to compare with
}

const (
	tick  = 250 * time.Millisecond
	stuck = 2 * time.Minute // if no row is applied for so long, the demo gives up
	grace = 5 * time.Second // between SIGTERM and SIGKILL
)

// Run runs the demo and writes its story to out. When it returns, even with an error, it has left no
// process, socket or temporary folder. If the report is not clean, Run returns an error.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	s := newStory(out)
	s.say("%s", o.firstLine())
	root, err := o.folder()
	if err != nil {
		return err
	}
	if !o.Keep {
		defer func() { _ = os.RemoveAll(root) }()
	}
	python, version, err := checkPython(o.Python)
	q, isLive := queues[o.Source]
	if err == nil && isLive && o.Group {
		err = checkGroup(python, q)
	}
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	port, err := testbroker.FreePort() // a master that starts again uses the same one
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	dirs, err := makeFolders(root)
	if err != nil {
		return err
	}
	defer dirs.remove()
	t := &team{folders: dirs, processes: processes{dir: dirs.outputs}, binary: binary, python: python, address: address,
		rates: fileRates, dataset: datasetYAML(dirs.log)}
	defer t.stopAll(s)
	k := &killer{team: t, tell: s, plan: filePlan}
	if isLive {
		if k.topic, err = startTopic(ctx, s, q); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.topic.close()) }()
		t.rates, t.maxWait, k.plan = topicRates, topicMaxWait, topicPlan
		t.dataset = topicYAML(k.topic.broker)
	}
	m, err := writeLog(ctx, s, o, dirs)
	if err != nil {
		return err
	}
	if k.books, err = newLedger(address, dirs.state); err != nil {
		return err
	}
	defer k.books.close()
	if err := k.begin(ctx, o, m, version); err != nil {
		return interrupted(ctx, err)
	}
	started := time.Now()
	if err := follow(ctx, o, k); err != nil {
		return interrupted(ctx, err)
	}
	if err := k.end(ctx, o, time.Since(started)); err != nil {
		return err
	}
	s.say("report: %s%s", o.Report, kept(o, root))
	s.plain(func(out io.Writer) { _, _ = fmt.Fprintln(out, nextCommand(o, binary)) })
	return nil
}

// begin starts all processes.
func (k *killer) begin(ctx context.Context, o Options, m *clicklog.Manifest, python string) (err error) {
	if k.topic != nil {
		err = k.startLive(ctx, o, m)
	} else {
		err = k.team.startAll(ctx, k.books)
	}
	if err == nil {
		k.tell.say("started a master (process %d), two agents and four trainers (%s),", k.team.master.Pid(), python)
		k.tell.say("two on each agent, paced to %s rows/s", paces(k.team.rates))
	}
	return err
}

// end stops all processes and makes the report.
func (k *killer) end(ctx context.Context, o Options, took time.Duration) error {
	settled, listed, err := k.settled(ctx, int64(o.Records))
	if err != nil {
		return interrupted(ctx, err)
	}
	k.team.stopAll(k.tell)
	how, unit := "end of data", "bytes"
	if k.topic != nil {
		how, unit = "every record is in the model", "records"
	}
	of := ""
	if listed >= 0 {
		of = " of " + report.Thousands(int(listed))
	}
	k.tell.say("%s; in the master's books %s%s %s are settled", how, report.Thousands(int(settled)), of, unit)
	k.tell.say("and this is what the trainers' own journals say, without asking it:")

	r, err := k.reportFolders().Compute()
	if err != nil {
		return err
	}
	r.CPU = k.team.cpuShares(took)
	for i, g := range k.groups {
		r.Groups[i].Title, r.Groups[i].About, r.Groups[i].CPU = g.rival.title, g.rival.about, r.CPU[g.rival.kind]
	}
	if err := r.Write(o.Report); err != nil {
		return err
	}
	k.tell.plain(r.Print)
	if !r.Clean {
		return fmt.Errorf("the report is not clean: see %s", o.Report)
	}
	return nil
}

// nextCommand is the last line of the output: how to do the same with the user's own data.
func nextCommand(o Options, binary string) string {
	data := map[string]string{
		Kafka: "kafka://HOST:9092/TOPIC", Pulsar: "pulsar://HOST:6650/TOPIC?admin=http://HOST:8080", RocketMQ: "rocketmq://HOST:9876/TOPIC",
	}[o.Source]
	if data == "" {
		data = "DATA"
	}
	return "The next command, on your own data, writes a spec and a program that trains on it:\n  " + fromHere(binary) + " init " + data
}

// fromHere writes a path as a user in this folder would type it.
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

// folder makes the folder of this run: a temporary one, or o.Dir, which must be empty or new.
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

func writeLog(ctx context.Context, s *story, o Options, dirs folders) (*clicklog.Manifest, error) {
	var fs unix.Statfs_t
	need := clicklog.EstimatedBytes(o.Records)
	if live(o.Source) {
		need *= 2
	}
	if err := unix.Statfs(dirs.root, &fs); err == nil && int64(fs.Bavail)*int64(fs.Bsize) < need {
		return nil, fmt.Errorf("%s has %d MB free and the click log takes %d MB; name another folder with --dir, or fewer --records",
			dirs.root, int64(fs.Bavail)*int64(fs.Bsize)>>20, need>>20)
	}
	s.say("writing a click log of %s records (Criteo's layout, Zipf ids, a drift half way, seed %d) ...", report.Thousands(o.Records), o.Seed)
	start := time.Now()
	m, err := clicklog.Write(ctx, clicklog.Options{LogDir: dirs.log, TruthDir: dirs.truth, Records: o.Records, Seed: o.Seed})
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	s.say("%d files, %d MB, in %.1f s: %s", len(m.Files), m.Bytes>>20, time.Since(start).Seconds(), dirs.log)
	return m, nil
}

// interrupted turns an error into one about Ctrl-C, if that was the reason.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; all processes are ended and temporary files removed")
	}
	return err
}
