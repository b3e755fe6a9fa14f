package serve_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func detailOf(t *testing.T, err error) *headracev1.ErrorDetail {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*headracev1.ErrorDetail); ok {
			return d
		}
	}
	t.Fatalf("no detail in %v", err)
	return nil
}

func TestApplyCreatesThenChangesNothingThenChangesLeases(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), nil)
	changed := m.srv.Changed()
	r, err := m.datasets().Apply(t.Context(), &headracev1.ApplyRequest{Yaml: clicks, DryRun: true})
	if err != nil || r.Outcome != headracev1.ApplyReply_CREATED {
		t.Fatalf("dry run: %v %v", r, err)
	}
	if l, err := m.datasets().List(t.Context(), &headracev1.ListRequest{}); err != nil || len(l.Datasets) != 0 {
		t.Fatalf("a dry run made it: %v %v", l, err)
	}
	r, err = m.apply(clicks)
	if err != nil || r.Outcome != headracev1.ApplyReply_CREATED || r.Dataset.Id != 1 || r.Dataset.State != "listing" || r.Dataset.Yaml != clicks {
		t.Fatalf("create: %v %v", r, err)
	}
	<-changed // discovery was woken
	r, err = m.apply(clicks + "# only a comment\n")
	if err != nil || r.Outcome != headracev1.ApplyReply_UNCHANGED || r.Diff != "" {
		t.Fatalf("the same again: %v %v", r, err)
	}
	longer := strings.Replace(clicks, "max: 100", "max: 400, target: 5s, stall: 1h", 1)
	r, err = m.apply(longer)
	if err != nil || r.Outcome != headracev1.ApplyReply_CHANGED || !strings.Contains(r.Diff, "lease.max: 100 -> 400") {
		t.Fatalf("larger leases: %v %v", r, err)
	}
	d, err := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
	if err != nil || !strings.Contains(d.SpecJson, `"max":400`) || d.Id != 1 {
		t.Fatalf("describe: %v %v", d, err)
	}
	m.must(m.stop())
}

func TestAChangeOfWhatRecordsMeanIsRefusedByField(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	m.setUp(100)
	a := m.joined("a", 0)
	held := a.grant()
	// While records are leased, their meaning cannot be changed.
	_, err := m.apply(strings.Replace(clicks, "dtype: bytes", "dtype: string", 1))
	if d := detailOf(t, err); status.Code(err) != codes.FailedPrecondition || !strings.Contains(d.Hint, "stop them") {
		t.Errorf("while records are held: %v %v", err, d)
	}
	a.mustAck(held)
	for _, c := range []struct{ field, old, new string }{
		{"files.root", "/data", "/other"},
		{"decode.columns.line.dtype", "dtype: bytes", "dtype: string"},
		{"shuffle.block", "lease:", "shuffle: {seed: 1}\nlease:"},
		{"order", "lease:", "order: strict\nlease:"},
	} {
		_, err := m.apply(strings.Replace(clicks, c.old, c.new, 1))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		if d := detailOf(t, err); d.Dataset != "clicks" || d.Field != c.field || !strings.Contains(d.Hint, "headrace delete clicks") || !strings.Contains(d.Hint, "--fresh") {
			t.Errorf("%s: %v", c.field, d)
		}
	}
}

func TestAnUntouchedDatasetTakesAnyOtherSpec(t *testing.T) {
	var released []string
	m := startMaster(t, memstore.New(), func(c *serve.Config) {
		c.Release = func(_ context.Context, s *dataset.Spec) error { released = append(released, s.Name); return nil }
	})
	defer m.stop()
	m.setUp(100)
	other := strings.Replace(clicks, "dtype: bytes", "dtype: string", 1) + "shuffle: {seed: 1}\n"
	r, err := m.apply(other)
	if err != nil || r.Outcome != headracev1.ApplyReply_CHANGED || r.Dataset.Id == 1 || !strings.Contains(r.Diff, "decode.columns.line.dtype") {
		t.Fatalf("%v %v", r, err)
	}
	d, err := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
	if err != nil || d.Id != r.Dataset.Id || d.Yaml != other || d.Partitions != 0 || d.State != "listing" {
		t.Errorf("described as %v (%v), want the new spec, listed from the start", d, err)
	}
	if len(released) != 0 { // old and new spec read the same source, so nothing is released there
		t.Errorf("these datasets were released at their source: %v, want none", released)
	}
}

// What a deleted dataset has at its source is removed, however often that is cut short.
func TestADeletedDatasetIsReleasedByTheNextMaster(t *testing.T) {
	st, away := memstore.New(), errors.New("the broker is away")
	released := make(chan string, 10)
	broken := func(c *serve.Config) {
		c.Release = func(context.Context, *dataset.Spec) error { return away }
	}
	m := startMaster(t, st, broken)
	_, err := m.apply(clicks)
	m.must(err)
	if _, err := m.datasets().Delete(t.Context(), &headracev1.DeleteRequest{Name: "clicks"}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "tries again") {
		t.Errorf("the deletion got %v", err)
	}
	if _, err := m.apply(clicks); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), away.Error()) {
		t.Errorf("the dataset is applied again before the source is released: %v", err)
	}
	m.must(m.stop())
	whole := func(c *serve.Config) {
		c.Release = func(_ context.Context, s *dataset.Spec) error { released <- s.Name; return nil }
	}
	m = startMaster(t, st, whole)
	select {
	case name := <-released:
		if name != "clicks" {
			t.Errorf("dataset %s was released", name)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the next master releases nothing")
	}
	_, err = m.apply(clicks)
	m.must(err, m.stop())
	m = startMaster(t, st, whole)
	_, err = m.apply(clicks)
	m.must(err, m.stop())
	if len(released) != 0 {
		t.Errorf("it was released %d times more, though the first time was enough", len(released))
	}
}

// Two datasets of a job may share files only if neither of them deletes what it has read.
func TestADatasetThatWouldDeleteFilesOfAnotherIsRefused(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	spec := func(name, root, more string) string {
		return "name: " + name + "\nfiles: {root: " + root + ", end: never" + more + "}\ndecode: lines\n"
	}
	apply := func(text, want string) {
		t.Helper()
		_, err := m.apply(text)
		if want == "" {
			m.must(err)
			return
		}
		if d := detailOf(t, err); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) || !strings.Contains(d.Hint, "an input of its own, or remove files.retain") {
			t.Errorf("%v (%v), want: %s", err, d, want)
		}
	}
	apply(spec("a", "/data", ""), "")
	apply(spec("b", "/data/in", ""), "")
	apply(spec("c", "/data/in/today", ", retain: 1h"), `dataset "c" would delete what dataset "a" reads`)
	apply(spec("a", "/data", ", retain: 1h"), `dataset "a" would delete what dataset "b" reads`)
	apply(spec("c", "/drops", ", retain: 1h"), "")
	apply(spec("c", "/drops", ", retain: 2h"), "") // dataset c may share the folder with itself
	apply(spec("d", "/", ""), `dataset "c" would delete what dataset "d" reads`)
	apply(spec("c", "/drops", ""), "")
	apply(spec("d", "/", ""), "")
}

func TestABadSpecIsRefusedWithLineAndField(t *testing.T) {
	m := startMaster(t, memstore.New(), func(c *serve.Config) {
		c.Check = func(_ context.Context, s *dataset.Spec) error {
			if s.Name == "nofile" {
				return dataset.SpecErrors{{Field: "files.root", Value: s.Folders()[0], Reason: "no such folder", Allowed: "allowed roots: /data"}}
			}
			return nil
		}
	})
	defer m.stop()
	_, err := m.apply(strings.Replace(clicks, "dtype: bytes", "dtype: int", 1))
	d := detailOf(t, err)
	if status.Code(err) != codes.InvalidArgument || d.Line != 6 || d.Field != "decode.columns[0].dtype" {
		t.Errorf("bad dtype: %v (%v)", err, d)
	}
	_, err = m.apply(strings.Replace(clicks, "name: clicks", "name: nofile", 1))
	d = detailOf(t, err)
	if status.Code(err) != codes.InvalidArgument || d.Field != "files.root" || d.Dataset != "nofile" || d.Hint != "allowed roots: /data" {
		t.Errorf("refused by the check: %v (%v)", err, d)
	}
}

func TestAnUnknownDatasetNamesThoseThatExist(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	ds, ctx := m.datasets(), t.Context()
	_, err := ds.Describe(ctx, &headracev1.DescribeRequest{Name: "clicks"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "no dataset was applied yet") {
		t.Errorf("empty master: %v", err)
	}
	m.setUp(10)
	calls := map[string]func() error{
		"describe": func() error {
			_, err := ds.Describe(ctx, &headracev1.DescribeRequest{Name: "clicsk"})
			return err
		},
		"pause":  func() error { _, err := ds.Pause(ctx, &headracev1.PauseRequest{Name: "clicsk"}); return err },
		"resume": func() error { _, err := ds.Resume(ctx, &headracev1.ResumeRequest{Name: "clicsk"}); return err },
		"delete": func() error { _, err := ds.Delete(ctx, &headracev1.DeleteRequest{Name: "clicsk"}); return err },
		"state":  func() error { _, err := ds.State(ctx, &headracev1.StateRequest{Name: "clicsk"}); return err },
	}
	for what, call := range calls {
		err := call()
		if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "clicks") || detailOf(t, err).Dataset != "clicsk" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestPausedNothingIsGrantedAndResumedAllIs(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	m.setUp(100)
	a := m.joined("a", 0)
	defer a.hangUp()
	_, err := m.datasets().Pause(t.Context(), &headracev1.PauseRequest{Name: "clicks"})
	m.must(err)
	if g, s, err := a.ask(); err != nil || g != nil || s.State != headracev1.Standing_PAUSED {
		t.Fatalf("paused: %v %v %v", g, s, err)
	}
	_, err = m.datasets().Resume(t.Context(), &headracev1.ResumeRequest{Name: "clicks"})
	m.must(err)
	m.must(a.until(func(r *headracev1.MasterMessage) bool { return len(r.Grants) == 1 }))
}

func TestDeleteRevokesLeasesAndDryRunOnlyCounts(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	m.setUp(300)
	a := m.joined("a", 0)
	defer a.hangUp()
	a.mustAck(a.grant())
	g := a.grant()
	r, err := m.datasets().Delete(t.Context(), &headracev1.DeleteRequest{Name: "clicks", DryRun: true})
	if err != nil || r.Leases != 1 || r.Counts.Acked != 100 || r.Counts.Leased != 100 || r.Counts.Listed != 300 {
		t.Fatalf("dry run: %v %v", r, err)
	}
	_, err = m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
	m.must(err)
	if _, err := m.datasets().Delete(t.Context(), &headracev1.DeleteRequest{Name: "clicks"}); err != nil {
		t.Fatal(err)
	}
	m.must(a.until(func(r *headracev1.MasterMessage) bool {
		return len(r.Revokes) == 1 && r.Revokes[0].Token.Sequence == g.Token.Sequence
	}))
	if res, err := a.ack(g.Token, g.LeaseEnd); err != nil || res.Code != headracev1.AckResult_STALE {
		t.Fatalf("ack after delete: %v %v", res, err)
	}
	again, err := m.apply(clicks)
	if err != nil || again.Dataset.Id != 2 {
		t.Fatalf("applied again: %v (%v), want number 2, because a number is never used twice", again, err)
	}
}

func TestStateIsPagedInOrderOfPartitions(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	_, err := m.apply(clicks)
	m.must(err)
	var ids []serve.NewPartition
	for i := range 25 {
		ids = append(ids, serve.NewPartition{ID: sources.PartitionID(fmt.Sprintf("files:clicks/%d", i))})
	}
	numbers, err := m.srv.AddPartitions(t.Context(), 1, ids, false)
	m.must(err)
	if again, err := m.srv.AddPartitions(t.Context(), 1, ids[3:4], false); err != nil || again[0] != numbers[3] {
		t.Fatalf("a known partition got another number: %v %v", again, err)
	}
	for _, no := range numbers {
		m.must(m.srv.AddSegments(t.Context(), no, -1, []sources.Segment{{End: 10, Sealed: true}}, true))
	}
	var got []uint32
	req := &headracev1.StateRequest{Name: "clicks", PageSize: 10}
	for pages := 0; ; pages++ {
		r, err := m.datasets().State(t.Context(), req)
		m.must(err)
		for _, p := range r.Partitions {
			got = append(got, p.Number)
			if p.Counts.Listed != 10 || p.Distances.Planned != 10 {
				t.Fatalf("the state of partition %d is %v, want 10 units listed and 10 to head", p.Number, p)
			}
		}
		if req.PageToken = r.NextPageToken; req.PageToken == "" {
			if pages != 2 {
				t.Errorf("the state of 25 partitions came in %d pages of 10, want 3", pages+1)
			}
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(numbers) {
		t.Fatalf("the pages have the partitions %v, want %v", got, numbers)
	}
	for _, bad := range []*headracev1.StateRequest{{Name: "clicks", PageSize: 5000}, {Name: "clicks", PageToken: "x"}} {
		if _, err := m.datasets().State(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the request %v got %v, want InvalidArgument", bad, err)
		}
	}
}

func TestJobShowsAgentsWorkersAndTotals(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	m.srv.SetHTTP("127.0.0.1:9")
	m.setUp(300)
	msg := hello("node-1", 7)
	msg.Hello.Host, msg.Hello.Pid, msg.Hello.Gpus, msg.Hello.Version = "h", 42, []string{"0: GPU"}, "0.1"
	msg.Joins = []*headracev1.Join{{Worker: 1, Rank: 3, Incarnation: 5, WorldSize: 8, Pid: 43}}
	a, _, err := m.connect(msg)
	m.must(err)
	defer a.hangUp()
	a.mustAck(a.grant())
	a.grant()
	r, err := m.datasets().Job(t.Context(), &headracev1.JobRequest{})
	m.must(err)
	if r.Job != "job" || r.Model != "shared" || r.Version != "test" || r.State != "running" || r.Http != "127.0.0.1:9" || r.GrantsTotal != 2 || r.AcksTotal != 1 || len(r.Datasets) != 1 {
		t.Errorf("job: %v", r)
	}
	if len(r.Agents) != 1 || r.Agents[0].Host != "h" || r.Agents[0].Pid != 42 || r.Agents[0].Session != "live" || len(r.Agents[0].Gpus) != 1 {
		t.Errorf("agents: %v", r.Agents)
	}
	if len(r.Workers) != 1 || r.Workers[0].Rank != 3 || r.Workers[0].Pid != 43 || r.Workers[0].Leases != 1 || r.Workers[0].UnitsAcked != 100 {
		t.Errorf("workers: %v", r.Workers)
	}
}

func TestDiscoverySeesWhatIsListedAndWhatRunsDry(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	ctx := t.Context()
	_, err := m.apply(clicks)
	m.must(err)
	no, err := m.srv.AddPartitions(ctx, 1, []serve.NewPartition{{ID: "files:clicks"}}, false)
	m.must(err)
	segs := []sources.Segment{{ID: 0, End: 100, Sealed: true, Locator: []byte("a"), Name: "a"}, {ID: 1, End: 50, Sealed: true, Locator: []byte("b"), Name: "b"}}
	m.must(m.srv.AddSegments(ctx, no[0], -1, segs, false), m.srv.AddSegments(ctx, no[0], 1, segs, false)) // the second call adds nothing
	all, err := m.srv.Datasets(ctx)
	m.must(err)
	if len(all) != 1 || all[0].Spec.Name != "clicks" || all[0].PartitionsKnown || len(all[0].Partitions) != 1 {
		t.Fatalf("datasets: %+v", all)
	}
	if p := all[0].Partitions[0]; p.LastSegment != 1 || p.Ahead != 150 || p.Complete || p.Segments != 2 {
		t.Errorf("partition: %+v", p)
	}
	got, err := m.srv.Segments(ctx, no[0], 0, 0)
	if err != nil || len(got) != 1 || got[0].Name != "b" || string(got[0].Locator) != "b" || got[0].End != 50 {
		t.Errorf("segments after 0: %+v %v", got, err)
	}
	m.must(m.srv.Fail(ctx, 1, "a.txt changed"))
	d, err := m.datasets().Describe(ctx, &headracev1.DescribeRequest{Name: "clicks"})
	if err != nil || d.State != "failed" || d.Reason != "a.txt changed" {
		t.Errorf("failed: %v %v", d, err)
	}
	if _, err := m.srv.AddPartitions(ctx, 9, nil, false); !errors.Is(err, serve.ErrUnknown) {
		t.Errorf("unknown dataset: %v", err)
	}
}

// All virtual ranks must get the same segments. Assume that each got them in a commit of its own,
// and the master was killed between two commits. It would list the source again for the other
// ranks, and the source may have grown by then.
func TestVirtualRanksGetTheirSegmentsInOneCommit(t *testing.T) {
	var commits atomic.Int64
	st := memstore.New()
	st.After = func(int) error { commits.Add(1); return nil }
	m := startMaster(t, st, nil)
	defer m.stop()
	ctx := t.Context()
	_, err := m.apply(clicks + "bit_exact: {virtual_ranks: 3}\n")
	m.must(err)
	no, err := m.srv.AddPartitions(ctx, 1, []serve.NewPartition{{ID: "files:clicks"}}, false)
	m.must(err)
	all := []sources.Segment{{End: 100, Sealed: true}, {ID: 1, End: 50, Sealed: true}, {ID: 2, End: 7, Sealed: true}}
	before := commits.Load()
	m.must(m.srv.AddSegments(ctx, no[1], -1, all[:2], false), m.srv.AddSegments(ctx, no[0], 1, all[2:], true))
	if n := commits.Load() - before; n != 2 {
		t.Errorf("two calls took %d commits, want one for each call", n)
	}
	for _, p := range no {
		got, err := m.srv.Segments(ctx, p, -1, 0)
		if err != nil || len(got) != 3 || got[1].End != 50 {
			t.Errorf("partition %d has %v (%v)", p, got, err)
		}
	}
	if err := m.srv.AddSegments(ctx, no[2], -1, all[:1], false); !errors.Is(err, serve.ErrUnknown) {
		t.Errorf("a listing that begins before the known segments got %v", err)
	}
}
