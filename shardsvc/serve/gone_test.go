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
		t.Errorf("nobody has told the master of deleted records, but it says that %v is gone", g)
	}
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", Low: 120}})
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", Low: 150}, {Source: "files:views", Low: 9}})
	g := m.cutAt(7).Gone
	if g == nil || !g.Stops || g.Units != 50 || len(g.Ranges) != 1 || g.Ranges[0].Start != 100 || g.Ranges[0].End != 150 || g.Ranges[0].Dataset != "clicks" ||
		g.Ranges[0].Partition != "files:clicks" || g.Ranges[0].Unit != "bytes" || g.Ranges[0].Passes != 1 || g.Ranges[0].Whole {
		t.Errorf("the master says that %v of cut 7 is gone", g)
	}
	if g := m.cutAt(8).Gone; g != nil {
		t.Errorf("cut 8 needs no deleted record, but the master says that %v is gone", g)
	}

	rewind := func(dry bool) (*headracev1.RewindReply, error) {
		return m.ckpt().Rewind(t.Context(), &headracev1.RewindRequest{Job: "job", Body: first.Body, Path: "/ckpt/1", DryRun: dry})
	}
	dry, err := rewind(true)
	m.must(err)
	if dry.Gone.GetUnits() != 50 || !strings.Contains(dry.Refused, "[100, 150) of files:clicks") || !strings.Contains(dry.Hint, "go back to step 2") {
		t.Errorf("the dry run says %v, want 50 units gone, a refusal that names [100, 150), and step 2 as the way out", dry)
	}
	if _, err := rewind(false); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "cannot go back to step 1") {
		t.Errorf("the rewind got %v, want a refusal", err)
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
		t.Errorf("with on_loss: continue the rewind says %v, want 50 units gone and no refusal", done)
	}
	if g := m.cutAt(8); g.State != "voided" || g.Gone != nil {
		t.Errorf("after the rewind cut 8 is %v, want voided with nothing gone", g)
	}
	m.must(m.srv.Truncated(t.Context(), 1, 0, 0, 150, "the guard says so"))
	if g := m.cutAt(7).Gone; g != nil {
		t.Errorf("all deleted records are excluded, but the master says that %v is gone", g)
	}

	// The source was deleted and made again, so the dataset cannot go on without the deleted records.
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", All: true}})
	if g := m.cutAt(7).Gone; g == nil || !g.Stops || !g.Ranges[0].Whole || g.Ranges[0].Start != 150 || g.Ranges[0].End != 1000 {
		t.Errorf("the master says that %v of cut 7 is gone", g)
	}
	if dry, err = rewind(true); err != nil || !strings.Contains(dry.Hint, "delete dataset clicks") || strings.Contains(dry.Hint, "on_loss") {
		t.Errorf("the dry run says %v (%v), want the hint to delete the dataset", dry, err)
	}
	m.srv.SetDeleted(1, []serve.Deletion{{Source: "files:clicks", Low: 170}})
	if g := m.cutAt(7).Gone; g == nil || g.Ranges[0].Whole || g.Ranges[0].Start != 150 || g.Ranges[0].End != 170 {
		t.Errorf("the master says that %v of cut 7 is gone", g)
	}
	m.srv.NoteDeleted(1, []serve.Deletion{{Source: "files:clicks", Segment: 99, Low: 5}}) // it was trimmed
	m.must(m.srv.ForgetTrimmed(t.Context(), 1))
	if left := m.srv.Deletions(); len(left) != 1 || left[0].Low != 170 {
		t.Errorf("after the findings of trimmed segments were dropped there are %v, want only that of the listed segment", left)
	}
	m.srv.ForgetDeleted(1)
	if g := m.cutAt(7).Gone; g != nil {
		t.Errorf("the master says that %v of cut 7 is gone", g)
	}
	a.hangUp()
	m.must(m.stop())
}
