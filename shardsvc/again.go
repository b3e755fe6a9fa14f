package shardsvc

import (
	"math"

	"github.com/headrace/headrace/shardsvc/line"

	"github.com/headrace/headrace/shardsvc/cut"
)

// share is the part of the records that a rank with a model of its own has: what it
// restored or bound last, and its own acks since.
type share struct {
	*account
	own *lines
}

// comesAgain counts the units of a pass that are acked (by the ranks of shares, or by all)
// and not in want. more counts the units that are in want and not acked.
func (lg *ledger) comesAgain(ps *pass, shares []share, want *line.Set) (units, more int64) {
	minus := func(s, t *line.Set) int64 {
		m := s.Minus(t)
		m.Without(ps.excludedOnLine())
		return ps.UnitsIn(m)
	}
	if !lg.perRank {
		return minus(ps.done, want), minus(want, ps.done)
	}
	for _, r := range shares {
		set, _ := ps.ofRank(r.account, math.MaxInt64, r.own.of(ps.p, ps.n), cut.Tally{})
		units += minus(&set, want)
		more += minus(want, &set)
	}
	return units, more
}

// ackedBeside says whether any record outside the cut that lies at l is acked.
func (lg *ledger) ackedBeside(l *lines) bool {
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		for n := range p.begun() {
			if units, _ := lg.comesAgain(p.line(n), nil, l.of(p, n)); units > 0 {
				return true
			}
		}
	}
	return false
}

// recordsAgain counts the records in units that would come again. more counts the units that
// are in want and not acked. If there are any, nobody knows how many of the records are in
// which of the two, and all units are untold.
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
	if now.Untold > was.Untold { // units that were counted later are untold in want, so their rows cannot be told apart
		return cut.Untold(units)
	}
	was.Without(now)
	return cut.Tally{Rows: was.Rows, Untold: was.Untold}.Within(units)
}
