package serve_test

import (
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
)

func TestALossStopsTheDatasetOrIsListedPageByPage(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), func(c *serve.Config) {})
	m.setUp(100_000)
	a := m.joined("a", 0)
	g := a.grant()
	lose := func(g *headracev1.Grant, from, to int64) {
		a.send(&headracev1.AgentMessage{Failures: []*headracev1.ReadFailure{{Token: g.Token, At: g.LeaseStart, Permanent: true, Kind: "truncated",
			Message: "the log begins later", Lost: &headracev1.LostRange{Segment: g.Segment, Start: from, End: to}}}})
	}
	lose(g, g.LeaseStart, g.LeaseStart+1)
	a.send(&headracev1.AgentMessage{Requests: []*headracev1.LeaseRequest{{Id: 77, Worker: 1, Dataset: 1}}})
	m.must(a.until(func(r *headracev1.MasterMessage) bool {
		return len(r.Standings) > 0 && r.Standings[0].State == headracev1.Standing_FAILED && strings.Contains(r.Standings[0].Reason, "on_loss: continue")
	}))
	ask := &headracev1.ExcludedRequest{Name: "clicks", PageSize: 2}
	if none, err := m.datasets().Excluded(t.Context(), ask); err != nil || none.Total != 0 || len(none.Ranges) != 0 || none.NextPageToken != "" {
		t.Fatalf("before any loss was accepted, excluded are %v (%v), want none", none, err)
	}

	if r, err := m.apply(clicks + "on_loss: continue\n"); err != nil || r.Outcome != headracev1.ApplyReply_CHANGED {
		t.Fatalf("%v (%v)", r, err)
	}
	_, err := m.datasets().Resume(t.Context(), &headracev1.ResumeRequest{Name: "clicks"})
	m.must(err)
	var first *headracev1.Grant // of the request that waited
	m.must(a.until(func(r *headracev1.MasterMessage) bool {
		if len(r.Grants) > 0 {
			first = r.Grants[0]
		}
		return first != nil
	}))
	const ranges = 5
	held := []*headracev1.Grant{first}
	for len(held) < ranges {
		held = append(held, a.grant())
	}
	// A loss that the guard sees excludes no leased record, because its holder may have read it.
	m.must(m.srv.Truncated(t.Context(), first.Partition, first.Segment, held[0].LeaseStart, held[0].LeaseEnd, "polled"))
	for _, g := range held {
		lose(g, g.LeaseStart, g.LeaseStart+1)
	}
	a.grant() // the master has the losses when this is granted
	var starts []int64
	for pages := 1; ; pages++ {
		page, err := m.datasets().Excluded(t.Context(), ask)
		if err != nil || page.Total != ranges {
			t.Fatalf("page %d is %v (%v), want a total of %d ranges", pages, page, err, ranges)
		}
		for _, r := range page.Ranges {
			if r.End != r.Start+1 || r.Kind != "truncated" || r.Reason != "the log begins later" || r.UnixMs < 1e12 || r.Identity != "files:clicks" {
				t.Errorf("an excluded range is %v, want one unit of files:clicks with its kind, reason and time", r)
			}
			starts = append(starts, r.Start)
		}
		if ask.PageToken = page.NextPageToken; ask.PageToken == "" {
			if pages != 3 {
				t.Errorf("the %d ranges came in %d pages, want 3", ranges, pages)
			}
			break
		}
	}
	if len(starts) != ranges {
		t.Errorf("the excluded ranges begin at %v, want %d of them", starts, ranges)
	}
	if _, err := m.datasets().Excluded(t.Context(), &headracev1.ExcludedRequest{Name: "clicks", PageToken: "x"}); err == nil {
		t.Error("a page_token that the master never gave out was accepted")
	}
	if _, err := m.datasets().Excluded(t.Context(), &headracev1.ExcludedRequest{Name: "clicsk"}); err == nil || !strings.Contains(err.Error(), `did you mean "clicks"`) {
		t.Errorf("a misspelt dataset got %v, want a hint at clicks", err)
	}
	a.hangUp()
	m.must(m.stop())
}
