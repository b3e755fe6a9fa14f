package audit

import (
	"github.com/headrace/headrace/shardsvc/cut"
)

// recordsOf are the records of one pass of a partition that are in the model. Of
// several passes that are done a cut counts only all of them together; nil then.
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

// fewer counts the records that `all` has besides `some`, which are in it too; nil
// if that is not known.
func fewer(all, some *cut.Tally) *int64 {
	if all == nil || some == nil || all.Untold+some.Untold > 0 {
		return nil
	}
	n := all.Rows - some.Rows
	return &n
}
