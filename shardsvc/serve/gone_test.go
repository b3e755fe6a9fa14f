package serve_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
)

// cutAt returns what the master says of one cut.
func (m *master) cutAt(id uint64) *headracev1.CutState {
	m.t.Helper()
	reply, err := m.ckpt().Cuts(m.t.Context(), &headracev1.CutsRequest{})
	m.must(err)
	for _, k := range reply.Cuts {
		if k.Cut == id {
			shown, err := m.ckpt().Show(m.t.Context(), &headracev1.ShowCutRequest{Cut: id})
			m.must(err)
			if shown.Cut.Gone.GetUnits() != k.Gone.GetUnits() {
				m.t.Errorf("listed %v, shown %v", k.Gone, shown.Cut.Gone)
			}
			return k
		}
	}
	m.t.Fatalf("no cut %d", id)
	return nil
}

func TestAMasterRefusesToGoBackToWhatTheSourceHasDeletedUnlessALossIsTaken(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), func(cfg *serve.Config) { cfg.Model = "replicated" })
	m.setUp(1000)
	msg := hello("a", 7)
	msg.Joins = []*headracev1.Join{{Worker: 1, Incarnation: 100, WorldSize: 1}}
	a, _, err := m.connect(msg)
	m.must(err)
	first := a.saved(1, 7, "/ckpt/1")
	a.bound(50, 7, "/ckpt/1")
	a.saved(2, 8, "/ckpt/2")
	a.bound(51, 8, "/ckpt/2")
	if g := m.cutAt(7).Gone; g != nil {
		t.Errorf("of what nobody has looked at it says %v", g)
	}
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", Low: 120}})
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", Low: 150}, {Source: "files:views", Low: 9}})
	g := m.cutAt(7).Gone
	if g == nil || !g.Stops || g.Units != 50 || len(g.Ranges) != 1 || g.Ranges[0].Start != 100 || g.Ranges[0].End != 150 || g.Ranges[0].Dataset != "clicks" ||
		g.Ranges[0].Partition != "files:clicks" || g.Ranges[0].Unit != "bytes" || g.Ranges[0].Passes != 1 || g.Ranges[0].Whole {
		t.Errorf("%v", g)
	}
	if g := m.cutAt(8).Gone; g != nil {
		t.Errorf("of what is all there it says %v", g)
	}

	rewind := func(dry bool) (*headracev1.RewindReply, error) {
		return m.ckpt().Rewind(t.Context(), &headracev1.RewindRequest{Job: "job", Body: first.Body, Path: "/ckpt/1", DryRun: dry})
	}
	dry, err := rewind(true)
	m.must(err)
	if dry.Gone.GetUnits() != 50 || !strings.Contains(dry.Refused, "[100, 150) of files:clicks") || !strings.Contains(dry.Hint, "go back to step 2") {
		t.Errorf("%v", dry)
	}
	if _, err := rewind(false); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "cannot go back to step 1") {
		t.Errorf("%v", err)
	}
	if s := m.states(); s[0] != "bound!" || s[1] != "bound" {
		t.Errorf("a rewind that was refused changed something: %v", s)
	}
	if r, err := m.apply(clicks + "on_loss: continue\n"); err != nil || r.Outcome != headracev1.ApplyReply_CHANGED {
		t.Fatalf("%v (%v)", r, err)
	}
	done, err := rewind(false)
	m.must(err)
	if done.Gone.GetUnits() != 50 || done.Gone.Stops || done.Refused != "" {
		t.Errorf("%v", done)
	}
	if g := m.cutAt(8); g.State != "voided" || g.Gone != nil {
		t.Errorf("%v", g)
	}
	m.must(m.srv.Truncated(t.Context(), 1, 0, 0, 150, "the guard says so"))
	if g := m.cutAt(7).Gone; g != nil {
		t.Errorf("all of it is excluded, and it says %v", g)
	}

	// The topic is another one by now: the dataset cannot go on without the deleted records.
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", All: true}})
	if g := m.cutAt(7).Gone; g == nil || !g.Stops || !g.Ranges[0].Whole || g.Ranges[0].Start != 150 || g.Ranges[0].End != 1000 {
		t.Errorf("%v", g)
	}
	if dry, err = rewind(true); err != nil || !strings.Contains(dry.Hint, "delete dataset clicks") || strings.Contains(dry.Hint, "on_loss") {
		t.Errorf("%v (%v)", dry, err)
	}
	m.srv.SetDeleted(1, []serve.Deletion{{Source: "files:clicks", Low: 170}})
	if g := m.cutAt(7).Gone; g == nil || g.Ranges[0].Whole || g.Ranges[0].Start != 150 || g.Ranges[0].End != 170 {
		t.Errorf("%v", g)
	}
	m.srv.ForgetDeleted(1)
	if g := m.cutAt(7).Gone; g != nil {
		t.Errorf("%v", g)
	}
	a.hangUp()
	m.must(m.stop())
}
