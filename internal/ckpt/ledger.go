package ckpt

import (
	"slices"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/view"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Ledger is what a master's ledger says of cuts. A nil Ledger says nothing: no master was
// asked.
type Ledger struct {
	job  string
	cuts map[cut.ID]view.Cut
}

// NewLedger is the ledger of a master's reply.
func NewLedger(reply *headracev1.CutsReply) *Ledger {
	b := &Ledger{job: reply.Job, cuts: map[cut.ID]view.Cut{}}
	for _, k := range reply.Cuts {
		b.cuts[cut.ID(k.Cut)] = view.CutOf(k)
	}
	return b
}

// of is what the ledger says of the checkpoint with manifest m: the state of its cut,
// "unknown", or "another job's".
func (b *Ledger) of(m *manifest.Manifest) string {
	switch {
	case b == nil:
		return ""
	case m.Job != b.job:
		return "another job's"
	}
	if k, ok := b.cut(m); ok {
		return k.State
	}
	return "unknown"
}

// cut is the ledger's cut of the checkpoint with manifest m, if it keeps it.
func (b *Ledger) cut(m *manifest.Manifest) (k view.Cut, ok bool) {
	if b != nil && m.Job == b.job {
		k, ok = b.cuts[m.Cut.ID]
	}
	return k, ok
}

// newest says that c is the newest bound checkpoint: the one that a restore begins with.
func (b *Ledger) newest(c *manifest.Checkpoint) bool {
	return b != nil && c.Err == nil && c.Manifest.Job == b.job && b.cuts[c.Manifest.Cut.ID].Newest
}

// behind lists the cuts that the ledger forgets before the checkpoint c is removed. A
// manifest that cannot be read names none. Then they are the cuts that the ledger has
// bound at c's path, without the newest: a restore must find the newest in the ledger
// and say that its files are gone, so that nobody starts over by mistake.
func (b *Ledger) behind(c *manifest.Checkpoint) (all []cut.ID) {
	if c.Manifest != nil {
		return []cut.ID{c.Manifest.Cut.ID}
	}
	if b != nil {
		for id, k := range b.cuts {
			if k.Path == c.Path && !k.Newest {
				all = append(all, id)
			}
		}
	}
	return all
}

// NothingKept reports whether a trainer that starts begins with nothing: its model dies with
// it, and the job keeps no checkpoint that it could go back to.
func NothingKept(reply *headracev1.CutsReply) bool {
	return reply.Model != "shared" && !slices.ContainsFunc(reply.Cuts, func(k *headracev1.CutState) bool { return k.State != "voided" })
}
