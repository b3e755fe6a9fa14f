package shardsvc

import (
	"fmt"
	"slices"
)

// bind says that a valid manifest with the cut is at path. Acks that were kept apart for
// the cut fold. r is nil if a tool says it.
func (ck *checkpoints) bind(r *rank, id uint64, path string) (CutCode, string) {
	k := ck.kept(id)
	switch {
	case k == nil || k.state == cutUnbound:
		return CutRefused, fmt.Sprintf("the master has no checkpoint with cut %016x: it was removed, or its save was never answered. Save again", id)
	case k.state == CutVoided:
		return CutRefused, fmt.Sprintf("the checkpoint with cut %016x was voided: its records were given to others. Save again", id)
	case k.state == CutBound:
		return CutOK, ""
	case r != nil && ck.foreign(k, r):
		return CutFenced, fmt.Sprintf("the checkpoint with cut %016x is not one of this process, or its start of the group has ended", id)
	case path == "" && k.path == "":
		return CutRefused, "the path of the manifest is missing: name the file or folder of the checkpoint"
	}
	ck.bound(k, path)
	return CutOK, ""
}

func (ck *checkpoints) bindCut(e *BindCut) {
	k, resolves := ck.kept(e.Cut), ck.resolves(e.Cut)
	if _, reason := ck.bind(nil, e.Cut, e.Path); reason != "" {
		ck.ledger.rejected("%s", reason)
	} else if resolves {
		ck.rankResolved(ck.group.rankOf(uint32(k.rank)))
	}
}

func (ck *checkpoints) bound(k *keptCut, path string) {
	k.state, k.resolving = CutBound, false
	ck.isBack(k.id)
	if path != "" {
		k.path = path
	}
	ck.putCut(k)
	ck.reportCut(ReportCutBound, k, "")
	ck.replaced(k)
	ck.loadedBefore(k)
	ck.outdated(k)
	ck.abandoned(k)
	ck.kind.bound(k)
}

// abandoned drops older cuts of a shared model whose savers are gone: nobody will bind them.
// If a manifest of one was written, it can still be restored by its path.
func (ck *checkpoints) abandoned(k *keptCut) {
	if ck.model.byStep {
		return // the end of the process, or of the generation, resolves them
	}
	for _, x := range slices.Clone(ck.cuts) {
		if x.state == CutFrozen && x.order < k.order && !ck.group.hasProcess(x.incarnation) {
			ck.forgetCut(x, fmt.Sprintf("the process that saved it is gone, and cut %016x is newer", k.id))
		}
	}
}

// foreign says whether another process than r's, or another group, asked for the cut.
func (ck *checkpoints) foreign(k *keptCut, r *rank) bool {
	return ck.model.byStep && (!k.isOf(r) || k.generation != ck.generation || ck.genEnded || ck.model.perRank && k.incarnation != r.newestIncarnation())
}

// replaced drops the cut that was bound at k's path. A framework that always writes its
// file in one place has one manifest there, which is k's from now on.
func (ck *checkpoints) replaced(k *keptCut) {
	for _, x := range slices.Clone(ck.cuts) {
		if x != k && x.state == CutBound && x.path == k.path && k.path != "" {
			ck.forgetCut(x, fmt.Sprintf("the checkpoint with cut %016x has taken its place at %s", k.id, k.path))
		}
	}
}

// loadedBefore drops older cuts without a manifest. A framework carried them, they are bound
// because it has loaded them, and nobody else would ever remove them. Example: a program
// that is started 18 times, and loads its own file each time, leaves one such cut.
func (ck *checkpoints) loadedBefore(k *keptCut) {
	for _, x := range slices.Clone(ck.cuts) {
		if x != k && x.state == CutBound && x.path == "" && x.rank == k.rank && ck.after(k, x) {
			ck.forgetCut(x, fmt.Sprintf("a framework carries it, and the checkpoint with cut %016x is newer", k.id))
		}
	}
}

// outdated drops older cuts in memory: k is on storage, so nobody needs them.
func (ck *checkpoints) outdated(k *keptCut) {
	for _, x := range slices.Clone(ck.cuts) {
		if x.state.inMemory() && x.rank == k.rank && ck.after(k, x) {
			ck.forgetCut(x, fmt.Sprintf("the checkpoint with cut %016x is newer, and on storage", k.id))
		}
	}
}

// setBase says that the model of rank r began with k; nil: with nothing.
func (ck *checkpoints) setBase(r *rank, k *keptCut) {
	old := ck.past(r).base
	if old == k {
		return
	}
	ck.past(r).base = k
	ck.ledger.dirtyRank(r.account)
	if old != nil && old.state == cutUnbound {
		ck.deleteCut(old)
	}
}

// remark sets, where acks fold, the marks that follow the newest bound cut.
func (ck *checkpoints) remark() {
	if ck.model.byStep {
		return
	}
	k := ck.newestBound(nil)
	ck.ledger.markBound(ck.linesOf(k), k != nil)
}

// dropOf forgets a cut for rank r, or a tool.
func (ck *checkpoints) dropOf(r *rank, id uint64, reason string) (CutCode, string) {
	k := ck.kept(id)
	if h := ck.pause; h != nil && h.cut == id && (r == nil || r == h.w.rank) {
		ck.endPause(CutRefused, "the checkpoint was dropped: "+reason)
	}
	switch {
	case k == nil || k.state == cutUnbound:
		ck.remove(id) // another master kept it, or it was dropped before
		return CutOK, ""
	case k.state == CutVoided:
		return CutOK, "" // it stays known, so that its manifest never counts
	case r != nil && !k.isOf(r):
		return CutRefused, fmt.Sprintf("the checkpoint with cut %016x is that of rank %d: only that rank may drop it", id, k.rank)
	case id == ck.choice && ck.phase == restoreWaits:
		return CutRefused, fmt.Sprintf("the checkpoint with cut %016x is being restored: it can be dropped when a newer one is complete", id)
	case ck.goneBackTo(k):
		return CutRefused, fmt.Sprintf("the job went back to the checkpoint of step %[2]d (cut %016[1]x), and no newer one is complete: it is needed until then", id, k.step)
	case r != nil && k.state == CutFrozen && ck.foreign(k, r):
		return CutFenced, fmt.Sprintf("the checkpoint with cut %016x is not one of this process, or its start of the group has ended", id)
	case k.state == cutReturned:
		return CutRefused, fmt.Sprintf("the model went back to the checkpoint of step %[2]d in memory (cut %016[1]x), and no newer one is on storage: it is needed until then", id, k.step)
	}
	if k.state == CutBound {
		ck.remove(id)
	}
	ck.forgetCut(k, reason)
	return CutOK, ""
}

func (ck *checkpoints) dropCut(e *DropCut) {
	k, resolves := ck.kept(e.Cut), ck.resolves(e.Cut)
	if _, reason := ck.dropOf(nil, e.Cut, e.Reason); reason != "" {
		ck.ledger.rejected("%s", reason)
	} else if resolves {
		ck.rankResolved(ck.group.rankOf(uint32(k.rank)))
	}
}
