package shardsvc

import (
	"math"

	"github.com/headrace/headrace/shardsvc/line"

	"github.com/headrace/headrace/shardsvc/cut"
)

// share is what a rank with a model of its own has: what it restored or bound last, and
// its own acks since.
type share struct {
	*account
	own *lines
}

// comesAgain counts what of a pass is acked, by ranks or all, and not in want; and
// the reverse.
func (lg *ledger) comesAgain(ps *pass, shares []share, want *line.Set) (units, more int64) {
	minus := func(m, n line.Map) (units int64) {
		for _, x := range n {
			m.Clear(x.Start, x.End)
		}
		for _, x := range ps.excludedOnLine() {
			m.Clear(x.Start, x.End)
		}
		for _, x := range m {
			units += ps.Units(x.Start, x.End)
		}
		return units
	}
	if !lg.perRank {
		return minus(ps.done.Spans(), want.Spans()), minus(want.Spans(), ps.done.Spans())
	}
	for _, r := range shares {
		set, _ := ps.ofRank(r.account, math.MaxInt64, r.own.of(ps.p, ps.n), cut.Tally{})
		units += minus(set.Spans(), want.Spans())
		more += minus(want.Spans(), set.Spans())
	}
	return units, more
}

// recordsAgain are those in units that are acked, by ranks or all, and not in want,
// if not so many more are in want only.
func (lg *ledger) recordsAgain(p *partition, shares []share, want *lines, units, more int64) cut.Tally {
	if more > 0 {
		return cut.Untold(units)
	}
	was := p.tally()
	if lg.perRank {
		was = cut.Tally{}
		for _, r := range shares {
			was.Add(r.own.allRecords(p, math.MaxInt))
			for _, ps := range p.passes {
				for i := range ps.acks {
					if k := &ps.acks[i]; k.rank == r.no {
						was.Add(k.Tally)
					}
				}
			}
		}
	}
	now := want.allRecords(p, math.MaxInt)
	if now.Untold > was.Untold { // units that were told later are untold in want: whose rows they are is not known
		return cut.Untold(units)
	}
	was.Without(now)
	return cut.Tally{Rows: was.Rows, Untold: was.Untold}.Within(units)
}
