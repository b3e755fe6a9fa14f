package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
)

const older = "../internal/store/testdata/older/"

// moved reads the files of an old state in their present place. The locators in the state have the
// folder and the inodes of the day on which it was written, so each segment is opened by a new
// locator.
type moved struct {
	sources.Source
	locators map[int64][]byte
}

func (m *moved) Open(ctx context.Context, r sources.Range, from sources.Position, _ []byte) (sources.Cursor, error) {
	return m.Source.Open(ctx, r, from, m.locators[r.Segment])
}

func openMoved(t *testing.T, folder string, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
	here, part := *spec, *spec.Source.(*files.Spec)
	part.Root, here.Source = folder, &part
	o := dataset.Opening{AllowedRoots: []string{folder}, Logger: logger(t)}
	src, err := here.Open(o)
	if err != nil {
		return nil, err
	}
	all, err := src.Segments(t.Context(), "files:clicks", -1, 10)
	if err != nil {
		return nil, err
	}
	m := &moved{src, map[int64][]byte{}}
	for _, g := range all {
		m.locators[g.ID] = g.Locator
	}
	for _, g := range known {
		g.Locator = m.locators[g.ID]
		o.Known = append(o.Known, g)
	}
	if len(known) > 0 {
		m.Source, err = here.Open(o)
	}
	return m, err
}

// oldInput writes the files that the old jobs read, and returns where each line begins: by segment
// and offset.
func oldInput(t *testing.T, folder string) (lines [][2]int64) {
	t.Helper()
	for segment, last := range []int{4000, 6000} {
		var b strings.Builder
		for i := len(lines); i < last; i++ {
			lines = append(lines, [2]int64{int64(segment), int64(b.Len())})
			fmt.Fprintf(&b, "%d\t%d\tuser-%d\n", i%2, i, i%7)
		}
		check(t, os.WriteFile(filepath.Join(folder, string(rune('a'+segment))+".tsv"), []byte(b.String()), 0o600))
	}
	return lines
}

// The present code opens a state folder that older code wrote. Its dataset, progress and checkpoints
// are there, and a trainer gets each record that is not in the model once.
func TestAJobOfAnOlderFolderGoesOn(t *testing.T) {
	for _, c := range []struct {
		model  string
		acked  int     // lines that were acked in the old state
		steps  []int64 // the steps of its checkpoints
		inside int     // lines in the model with which the job goes on
	}{
		{"shared", 2500, nil, 2500},
		{"replicated", 2500, []int64{10, 20}, 2000},
	} {
		t.Run(c.model, func(t *testing.T) {
			folder := t.TempDir()
			lines := oldInput(t, folder)
			m := &wholeMaster{t: t, job: "default", model: c.model, state: filepath.Join(t.TempDir(), "state"), node: "vm", // the old agent's name, so the master waits for no other agent
				source: func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
					return openMoved(t, folder, spec, known)
				}}
			check(t, os.MkdirAll(m.state, 0o700))
			check(t, os.CopyFS(filepath.Join(m.state, "store"), os.DirFS(older+c.model)))
			m.begin()
			d := m.until("it is listed", func(d *pb.Dataset) bool { return d.Counts.Listed > 80_000 })
			if want := lines[c.acked][1]; d.Name != "clicks" || d.State != "running" || d.Counts.Acked != want || d.Counts.Settled != want {
				t.Errorf("dataset %s is %s with the counts %v, want clicks, running, %d bytes acked", d.Name, d.State, d.Counts, want)
			}
			m.hasCuts(t, c.steps)

			r := &rollReader{times: map[[3]int64]int{}, ended: make(chan struct{})}
			r.tr = must(hello(m.agent(t).socket, frame.Hello{WorldSize: 1}))(t)
			if len(c.steps) > 0 {
				r.restore(t, older+c.model+"-step-20.json")
			}
			r.read(t, frame.Open{Dataset: "clicks", Rows: 100, Track: true})
			<-r.ended
			if n := r.has(t); n != len(lines)-c.inside {
				t.Errorf("%d lines came, want the %d that are not in the model", n, len(lines)-c.inside)
			}
			for at := range r.times {
				if first := lines[c.inside]; at[1] == first[0] && at[2] < first[1] {
					t.Errorf("the line at offset %d came, but is in the model", at[2])
				}
			}
			m.until("the end", func(d *pb.Dataset) bool { return d.State == "done" && d.Counts.Acked == d.Counts.Listed })
			r.tr.bye()
		})
	}
}

// hasCuts checks that the master has bound cuts of exactly these steps.
func (m *wholeMaster) hasCuts(t *testing.T, steps []int64) {
	t.Helper()
	conn := m.conn()
	defer conn.Close()
	reply := must(pb.NewCheckpointsClient(conn).Cuts(t.Context(), &pb.CutsRequest{}))(t)
	found := map[int64]*pb.CutState{}
	for _, k := range reply.Cuts {
		found[k.Step] = k
	}
	if len(reply.Cuts) != len(steps) {
		t.Errorf("the cuts are %v, want those of steps %v", reply.Cuts, steps)
	}
	for _, step := range steps {
		if k := found[step]; k == nil || k.State != "bound" || k.Records.Rows != 100*step || !strings.HasSuffix(k.Path, "headrace-manifest.json") {
			t.Errorf("the cut of step %d is %v, want it bound with %d records", step, k, 100*step)
		}
	}
}

// restore goes back to the checkpoint of an old manifest.
func (r *rollReader) restore(t *testing.T, path string) {
	t.Helper()
	var manifest struct {
		Step int64
		Cut  json.RawMessage
	}
	check(t, json.Unmarshal(must(os.ReadFile(path))(t), &manifest))
	call := frame.Call{Call: frame.CallRestore, Mode: "newest", Body: manifest.Cut, Path: must(filepath.Abs(path))(t)}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		call.ID++
		check(t, r.tr.say(call))
		got := must(r.tr.answer())(t)
		if got.Code == frame.AnswerOK && got.Step == manifest.Step {
			return
		}
		if got.Code != frame.AnswerAgain || time.Now().After(end) { // a new master waits for its agents first
			t.Fatalf("the restore of %s was answered %+v", path, got)
		}
	}
}
