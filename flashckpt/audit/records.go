package audit

import "github.com/headrace/headrace/flashckpt/manifest"

// recordsOf are the records of one pass of a partition that are in the model. Of
// several passes that are done a cut counts only all of them together; nil then.
func recordsOf(p *manifest.Partition, pass uint32) *manifest.Records {
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
	return &manifest.Records{}
}

// fewer counts the records that `all` has besides `some`, which are in it too; nil
// if that is not known.
func fewer(all, some *manifest.Records) *int64 {
	if all == nil || some == nil || all.Untold+some.Untold > 0 {
		return nil
	}
	n := all.Rows - some.Rows
	return &n
}
