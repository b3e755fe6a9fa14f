package serve_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/serve"
)

// looks is the storage of checkpoints, as a master sees it.
type looks struct {
	found  atomic.Bool
	failed atomic.Int32 // the number of looks that fail before one succeeds
	asked  chan string
	moved  atomic.Int32
}

func (l *looks) set(cfg *serve.Config) {
	cfg.Model = "private"
	cfg.Look = func(_ context.Context, path string, _ cut.ID) (bool, time.Time, error) {
		l.asked <- path
		if l.failed.Add(-1) >= 0 {
			return false, time.Time{}, errors.New("the share is not mounted")
		}
		return l.found.Load(), time.Now().Add(-time.Minute), nil
	}
	cfg.Moved = func(context.Context) error {
		l.moved.Add(1)
		return errors.New("the broker sleeps")
	}
}

func privateMaster(t *testing.T) (*master, *looks) {
	noLeaks(t)
	l := &looks{asked: make(chan string, 16)}
	m := startMaster(t, memstore.New(), l.set)
	m.setUp(1000)
	return m, l
}

func (m *master) ckpt() headracev1.CheckpointsClient {
	return headracev1.NewCheckpointsClient(m.conn)
}

// saved acks a lease at a step and asks for the cut at that step.
func (a *agent) saved(step int64, cut uint64, path string) *headracev1.CutReply {
	a.t.Helper()
	g := a.grant()
	a.send(&headracev1.AgentMessage{
		Acks:  []*headracev1.Ack{{Token: g.Token, Prefix: g.LeaseEnd, Step: step, Worker: 1}},
		Steps: []*headracev1.StepReport{{Worker: 1, Step: step}},
	})
	return a.call(&headracev1.CutCall{Worker: 1, Id: cut, Call: &headracev1.CutCall_Ask{Ask: &headracev1.CutAsk{Cut: cut, Step: step, Path: path}}})
}

func (a *agent) call(c *headracev1.CutCall) *headracev1.CutReply {
	a.t.Helper()
	a.send(&headracev1.AgentMessage{Calls: []*headracev1.CutCall{c}})
	var reply *headracev1.CutReply
	if err := a.until(func(m *headracev1.MasterMessage) bool {
		for _, r := range m.CutReplies {
			if r.Id == c.Id {
				reply = r
			}
		}
		return reply != nil
	}); err != nil {
		a.t.Fatal(err)
	}
	return reply
}

func (a *agent) bound(id, cut uint64, path string) {
	a.t.Helper()
	r := a.call(&headracev1.CutCall{Worker: 1, Id: id, Call: &headracev1.CutCall_Bind{Bind: &headracev1.CutBind{Cut: cut, Path: path}}})
	if r.Code != headracev1.CutReply_OK {
		a.t.Fatal(r)
	}
}

// states lists the cuts of a master, the newest first.
func (m *master) states() (all []string) {
	m.t.Helper()
	reply, err := m.ckpt().Cuts(m.t.Context(), &headracev1.CutsRequest{})
	m.must(err)
	for _, k := range reply.Cuts {
		state := k.State
		if k.Newest {
			state += "!"
		}
		all = append(all, state)
	}
	return all
}

func (m *master) eventually(want string, is func() bool) {
	m.t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(2*time.Minute)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			m.t.Fatalf("after 2 minutes the cuts are %v, want %s", m.states(), want)
		}
	}
}

func one(m *master, state string) func() bool {
	return func() bool { s := m.states(); return len(s) == 1 && s[0] == state }
}

func gone(a *agent) {
	a.send(&headracev1.AgentMessage{Leaves: []*headracev1.Leave{{Worker: 1, Reason: headracev1.Leave_KILLED, Ended: true}}})
}

// docs/CUTS.md: "The master looks at the cut's path. If a valid manifest is there, the cut is
// bound. If not, [...] it is voided."
func TestTheCheckpointOfAProcessThatIsGoneIsLookedFor(t *testing.T) {
	for _, tc := range []struct {
		name   string
		found  bool
		failed int32
		want   string
	}{{"there", true, 0, "bound!"}, {"not there", false, 0, "voided"}, {"there, but the first look fails", true, 1, "bound!"}} {
		t.Run(tc.name, func(t *testing.T) {
			m, l := privateMaster(t)
			l.found.Store(tc.found)
			l.failed.Store(tc.failed)
			a := m.joined("a", 0)
			r := a.saved(1, 7, "/ckpt/step-1/headrace-manifest.json")
			body, err := cut.ParseJSON(r.Body)
			if err != nil || body.Step != 1 || body.Job != "job" || body.Rank != 0 || body.Datasets[0].Units().Acked != 100 {
				t.Fatalf("the answer to the ask has the cut %+v (%v), want 100 acked units at step 1", body, err)
			}
			if !one(m, "frozen")() {
				t.Fatal(m.states())
			}
			gone(a)
			m.eventually(tc.want, one(m, tc.want))
			if path := <-l.asked; path != "/ckpt/step-1/headrace-manifest.json" {
				t.Error(path)
			}
			a.hangUp()
			m.must(m.stop())
		})
	}
}

// A look that hangs, as on a share whose server is gone, hangs nobody else.
func TestALookThatHangsDoesNotKeepTheMasterFromStopping(t *testing.T) {
	hangs := make(chan struct{})
	asked := make(chan struct{}, 1)
	m := startMaster(t, memstore.New(), func(cfg *serve.Config) {
		cfg.Model = "private"
		cfg.Look = func(context.Context, string, cut.ID) (bool, time.Time, error) {
			asked <- struct{}{}
			<-hangs
			return true, time.Time{}, nil
		}
	})
	defer close(hangs)
	m.setUp(1000)
	a := m.joined("a", 0)
	a.saved(1, 7, "/ckpt/x")
	gone(a)
	<-asked
	if !one(m, "frozen")() {
		t.Error(m.states())
	}
	a.hangUp()
	m.must(m.stop())
}

func TestToolsListShowBindAndDropCuts(t *testing.T) {
	m, _ := privateMaster(t)
	a := m.joined("a", 0)
	a.saved(1, 7, "/ckpt/1")
	a.bound(50, 7, "/ckpt/1")
	a.saved(2, 8, "/ckpt/2")
	if s := m.states(); len(s) != 2 || s[0] != "frozen" || s[1] != "bound!" {
		t.Fatal(s)
	}
	job, err := m.datasets().Job(t.Context(), &headracev1.JobRequest{})
	if c := job.GetCheckpoint(); err != nil || c.GetCut() != 7 || c.Step != 1 || c.Rank != 0 || c.Path != "/ckpt/1" || c.Kept != 1 || c.AgeSeconds <= 0 {
		t.Errorf("the job's checkpoint is %+v (%v), want cut 7 of rank 0 at step 1", job.GetCheckpoint(), err)
	}
	shown, err := m.ckpt().Show(t.Context(), &headracev1.ShowCutRequest{Cut: 8})
	m.must(err)
	if body, err := cut.ParseJSON(shown.Body); err != nil || body.ID != 8 || shown.Cut.Units.Acked != 200 {
		t.Errorf("cut 8 is shown as %+v (%v), want 200 acked units", shown.Cut, err)
	}
	code := func(err error) codes.Code { return status.Code(err) }
	if _, err := m.ckpt().Show(t.Context(), &headracev1.ShowCutRequest{Cut: 9}); code(err) != codes.NotFound {
		t.Error(err)
	}
	if _, err := m.ckpt().Bind(t.Context(), &headracev1.BindCutRequest{Cut: 9, Path: "/x"}); code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if _, err := m.ckpt().Bind(t.Context(), &headracev1.BindCutRequest{Cut: 8, Path: "x"}); code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	_, err = m.ckpt().Bind(t.Context(), &headracev1.BindCutRequest{Cut: 8, Path: "/ckpt/2"})
	m.must(err)
	if s := m.states(); s[0] != "bound!" || s[1] != "bound" {
		t.Error(s)
	}
	for _, kept := range []bool{true, false} {
		dropped, err := m.ckpt().Drop(t.Context(), &headracev1.DropCutRequest{Cut: 7, Reason: "a test"})
		if err != nil || dropped.Kept != kept {
			t.Errorf("the drop of cut 7 says %v (%v), want kept %v", dropped, err, kept)
		}
	}
	if !one(m, "bound!")() {
		t.Error(m.states())
	}
	a.hangUp()
	m.must(m.stop())
}

func TestARewindSaysWhatItWouldDoAndTellsBrokersBeforeItIsAnswered(t *testing.T) {
	m, l := privateMaster(t)
	a := m.joined("a", 0)
	first := a.saved(1, 7, "/ckpt/1")
	a.bound(50, 7, "/ckpt/1")
	a.saved(2, 8, "/ckpt/2")
	a.bound(51, 8, "/ckpt/2")
	ask := func(change func(*headracev1.RewindRequest)) (*headracev1.RewindReply, error) {
		req := &headracev1.RewindRequest{Job: "job", Body: first.Body, Path: "/ckpt/1"}
		change(req)
		return m.ckpt().Rewind(t.Context(), req)
	}
	for want, change := range map[codes.Code]func(*headracev1.RewindRequest){
		codes.FailedPrecondition: func(r *headracev1.RewindRequest) { r.Job = "another" },
		codes.InvalidArgument:    func(r *headracev1.RewindRequest) { r.Body = r.Body[:40] },
	} {
		if _, err := ask(change); status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	dry, err := ask(func(r *headracev1.RewindRequest) { r.DryRun = true })
	m.must(err)
	if len(dry.Again) != 1 || dry.Again[0].Units != 100 || dry.Again[0].Unit != "bytes" || len(dry.Voided) != 1 || dry.Voided[0].Cut != 8 || len(dry.Fenced) != 1 || dry.Untold != "" {
		t.Errorf("the dry run says %+v; want 100 units again, cut 8 voided and one process fenced", dry)
	}
	if s := m.states(); s[0] != "bound!" || l.moved.Load() != 0 {
		t.Errorf("a dry run changed something: the cuts are %v, the brokers were told %d times", s, l.moved.Load())
	}
	done, err := ask(func(*headracev1.RewindRequest) {})
	m.must(err)
	if done.Again[0].Units != 100 || l.moved.Load() != 1 || done.Untold != "the broker sleeps" {
		t.Errorf("the rewind says %+v, and the brokers were told %d times; want 100 units again, 1 time, and the broker's error", done, l.moved.Load())
	}
	if s := m.states(); s[0] != "voided" || s[1] != "bound!" {
		t.Error(s)
	}
	marks, err := m.srv.CommitMarks(t.Context(), 1)
	if err != nil || len(marks) != 1 || marks[0].Position.Offset != 100 {
		t.Errorf("after the rewind the commit marks are %v (%v), want 100", marks, err)
	}
	a.hangUp()
	m.must(m.stop())
}

// docs/CUTS.md, "Commit": it moves to the low mark of the newest bound cut.
func TestCommitsFollowTheNewestBoundCheckpoint(t *testing.T) {
	m, _ := privateMaster(t)
	a := m.joined("a", 0)
	at := func(want int64) {
		t.Helper()
		if marks, err := m.srv.CommitMarks(t.Context(), 1); err != nil || len(marks) != 1 || marks[0].Position.Offset != want {
			t.Errorf("the commit marks are %v (%v), want %d", marks, err, want)
		}
	}
	a.saved(1, 7, "/ckpt/1")
	at(0) // the cut is frozen, but not bound
	moved := m.srv.Moved()
	a.bound(50, 7, "/ckpt/1")
	<-moved
	at(100)
	a.saved(2, 8, "/ckpt/2")
	at(100) // more is acked, but not bound
	a.bound(51, 8, "/ckpt/2")
	at(200)
	for i := range uint64(8) { // to the end of the pass, where the ledger folds it
		a.saved(int64(3+i), 9+i, "/ckpt/more")
		a.bound(60+i, 9+i, "/ckpt/more")
		at(int64(300 + 100*i))
	}
	a.hangUp()
	m.must(m.stop())
}
