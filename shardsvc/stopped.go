package shardsvc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const lossesListed = 32 // lost ranges that the reason of a stopped dataset names one by one

// lostRange is a range that stopped its dataset, or that was found to be lost after the
// dataset had stopped. start and end are the source's.
type lostRange struct {
	label               string
	pass                uint32
	segment, start, end int64
	kind, reason        string
}

func (r *lostRange) String() string {
	return fmt.Sprintf("partition %s pass %d: [%d, %d) of segment %d is lost at the source (%s): %s", r.label, r.pass, r.start, r.end, r.segment, r.kind, r.reason)
}

// touches says whether two ranges overlap, or one begins where the other ends.
func (r *lostRange) touches(s *lostRange) bool {
	return r.label == s.label && r.pass == s.pass && r.segment == s.segment && r.kind == s.kind && r.start <= s.end && s.start <= r.end
}

// stopAtLoss stops a dataset, because [start, end) of a pass is lost.
func (lg *ledger) stopAtLoss(ps *pass, start, end int64, x *loss) {
	lg.nameLoss(ps.p.ds, lostRange{ps.p.label(), ps.n, x.segment, start, end, x.kind, x.reason})
}

// nameLoss stops a dataset with a reason that names a loss. If a loss has stopped it
// before, the reason names this one too.
func (lg *ledger) nameLoss(d *dataset, r lostRange) {
	if d.state == failed && d.losses == nil {
		return // something else has stopped it
	}
	known := d.losses
	d.lost(r)
	switch {
	case d.state != failed:
		lg.failDataset(d, d.lossReason(), true)
	case !slices.Equal(known, d.losses):
		d.reason = d.lossReason()
		lg.dirtyDataset(d)
	}
}

// lost adds a range, joined with those that it touches. The joined range takes the reason
// of the part at its end, because sources delete from the beginning: that reason holds for
// all of it.
func (d *dataset) lost(r lostRange) {
	all := d.losses[:0:0]
	for _, s := range d.losses {
		if !s.touches(&r) {
			all = append(all, s)
			continue
		}
		if s.end > r.end {
			r.end, r.reason = s.end, s.reason
		}
		r.start = min(r.start, s.start)
	}
	all = append(all, r)
	slices.SortFunc(all, func(a, b lostRange) int {
		return cmp.Or(cmp.Compare(a.label, b.label), cmp.Compare(a.pass, b.pass), cmp.Compare(a.segment, b.segment), cmp.Compare(a.start, b.start))
	})
	d.losses = all
}

// lossReason names what is lost and says what to do.
func (d *dataset) lossReason() string {
	var said []string
	for i := range d.losses[:min(len(d.losses), lossesListed)] {
		said = append(said, d.losses[i].String())
	}
	if more := len(d.losses) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("and %d more ranges", more))
	}
	ways := fmt.Sprintf("to go on without it, set on_loss: continue in the spec, apply it and run `headrace dataset resume %s`: the range is excluded then, and listed. "+
		"Or delete the dataset and apply it with a start that still exists", d.name)
	if d.opt.VirtualRanks > 0 {
		ways = "without it the batches of a bit_exact dataset would be different: delete the dataset and apply it with a start that still exists"
	}
	return strings.Join(append(said, ways), "; ")
}

// unreadOf is the part of a loss that nobody has read or holds, as one range of the
// source's offsets.
func (ps *pass) unreadOf(x *loss) (start, end int64, any bool) {
	from, to, ok := ps.Within(x.segment, x.start, x.end)
	if !ok {
		return 0, 0, false
	}
	first, last, any := ps.unread(from, to)
	if !any {
		return 0, 0, false
	}
	return ps.StartPlace(first).Offset, ps.EndPlace(last).Offset, true
}

// unread is the smallest range that holds everything of [start, end) that is pending or
// not planned yet.
func (ps *pass) unread(start, end int64) (first, last int64, any bool) {
	first, last = end, start
	i, j := ps.pending.Overlap(start, end)
	if any = i < j; any {
		first, last = max(start, ps.pending[i].Start), min(end, ps.pending[j-1].End)
	}
	if end > ps.frontier {
		first, last, any = min(first, max(start, ps.frontier)), end, true
	}
	return first, last, any
}
