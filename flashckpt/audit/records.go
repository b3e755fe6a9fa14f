package audit

import (
	"github.com/headrace/headrace/shardsvc/cut"
)

// recordsOf returns how many records of one pass of a partition are in the model. nil: not known,
// because a cut has one count for all passes that are done.
func recordsOf(p *cut.Partition, pass uint32) *cut.Tally {
	if pass < p.Done {
		if p.Done > 1 {
			return nil
		}
		r := p.DoneCounted()
		return &r
	}
	for i := range p.Passes {
		if p.Passes[i].Pass == pass {
			r := p.Passes[i].Counted()
			return &r
		}
	}
	return &cut.Tally{}
}

// fewer counts the records of `all` that are not in `some`, which is part of `all`. nil:
// not known.
func fewer(all, some *cut.Tally) *int64 {
	if all == nil || some == nil || all.Untold+some.Untold > 0 {
		return nil
	}
	n := all.Rows - some.Rows
	return &n
}
