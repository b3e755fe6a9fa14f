package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// keptCut is one `c` key.
type keptCut struct {
	id          uint64
	order       uint64 // grows with every cut that is frozen, or taken from a manifest
	state       CutState
	epoch       uint32
	generation  uint32
	incarnation uint64 // of the asker
	rank        int64
	step        int64
	path        string
	body        []byte    // Cut without segments, encoded; empty when voided
	units       cut.Units // of body
	records     cut.Tally // of body

	resolving bool // private: the shell was asked to look at path
}

func (ck *checkpoints) loadCuts(l *loading) error {
	for _, s := range l.cuts {
		v := &s.val
		k := &keptCut{id: s.key.cut, order: v.order, state: v.state, epoch: v.epoch, generation: v.generation,
			incarnation: v.incarnation, rank: v.rank, step: v.step, path: v.path, body: v.body}
		if k.order > ck.cutOrder || !ck.owns(k.rank) {
			return fmt.Errorf("stored %s: its order number %d is above the highest, %d, or it belongs to another model kind", s.key, k.order, ck.cutOrder)
		}
		if k.state != CutVoided {
			body := k.decode()
			if uint64(body.ID) != k.id || int64(body.Rank) != k.rank {
				return fmt.Errorf("stored %s: its body is that of %v", s.key, body.ID)
			}
			k.units, k.records = body.Units(), body.Records()
		}
		ck.cuts = append(ck.cuts, k)
	}
	slices.SortFunc(ck.cuts, func(a, b *keptCut) int { return int(min(max(int64(a.order)-int64(b.order), -1), 1)) })
	for i := 1; i < len(ck.cuts); i++ {
		if ck.cuts[i].order == ck.cuts[i-1].order {
			return fmt.Errorf("stored cut %016x: its number %d is that of %016x too", ck.cuts[i].id, ck.cuts[i].order, ck.cuts[i-1].id)
		}
	}
	for _, s := range l.ranks {
		if id := s.val.base; id != 0 {
			k := ck.kept(id)
			if k == nil || k.rank != int64(s.key.rank) || k.state == CutVoided {
				return fmt.Errorf("stored %s: its model began with cut %016x, which is not there", s.key, id)
			}
			ck.past(ck.group.rankOf(s.key.rank)).base = k
		}
	}
	for _, k := range ck.cuts {
		if k.state == CutVoided {
			continue
		}
		if err := ck.ledger.fitBody(k.decode()); err != nil {
			return err
		}
	}
	ck.remark()
	return nil
}

// owns says whether the job has cuts of that owner.
func (ck *checkpoints) owns(owner int64) bool { return ck.model.perRank == (owner != cut.Group) }

// kept finds a cut.
func (ck *checkpoints) kept(id uint64) *keptCut {
	i := slices.IndexFunc(ck.cuts, func(k *keptCut) bool { return k.id == id })
	if i < 0 || id == 0 {
		return nil
	}
	return ck.cuts[i]
}

// linesOf lays a kept cut on the lines of its partitions. nil: the start.
func (ck *checkpoints) linesOf(k *keptCut) *lines {
	if k == nil {
		return nil
	}
	return ck.ledger.linesOfBody(k.decode())
}

// ownLines are what a rank with a model of its own restored or bound last.
func (ck *checkpoints) ownLines(r *rank) *lines {
	return ck.linesOf(ck.past(r).base)
}

// addCut keeps a new cut, the newest of all.
func (ck *checkpoints) addCut(k *keptCut, body *cut.Cut) {
	// A foreign cut has an order of its own. Cuts that are frozen from now on come after
	// it.
	ck.cutOrder = max(ck.cutOrder, body.Order) + 1
	ck.jobDirty = true
	body.Order = ck.cutOrder
	k.order, k.body, k.units, k.records = ck.cutOrder, body.Append(nil), body.Units(), body.Records()
	ck.cuts = append(ck.cuts, k)
	ck.putCut(k)
}

// comeAfter has the next cuts come after a checkpoint of that order, which this core may
// not know. No cut can have an order above cut.MaxOrder: whoever says one is mistaken.
func (ck *checkpoints) comeAfter(order uint64) {
	if order > ck.cutOrder && order < cut.MaxOrder {
		ck.cutOrder, ck.jobDirty = order, true
	}
}

func (ck *checkpoints) putCut(k *keptCut) {
	v := cutValue{k.state, k.order, k.epoch, k.generation, k.incarnation, k.rank, k.step, k.path, k.body}
	ck.fx.put(Set, k.key, v.append)
}

func (k *keptCut) key(b []byte) []byte { return be.AppendUint64(append(b, keyCut), k.id) }

// decode gives the body of a cut, without segments. A voided cut has none.
func (k *keptCut) decode() *cut.Cut {
	body, err := cut.Decode(k.body)
	if err != nil {
		panic("shardsvc: a kept cut cannot be read: " + err.Error())
	}
	body.Order = k.order
	return body
}

// forgetCut forgets a cut. If a rank's model began with it, its body stays.
func (ck *checkpoints) forgetCut(k *keptCut, reason string) {
	was := k.state
	k.resolving = false
	ck.reportCut(ReportCutDropped, k, reason)
	if k.rank != cut.Group && ck.past(ck.group.rankOf(uint32(k.rank))).base == k {
		k.state, k.path = cutUnbound, ""
		ck.putCut(k)
		return
	}
	ck.deleteCut(k)
	if was == CutBound {
		ck.remark()
	}
}

func (ck *checkpoints) deleteCut(k *keptCut) {
	ck.cuts = slices.DeleteFunc(ck.cuts, func(x *keptCut) bool { return x == k })
	ck.fx.put(Delete, k.key, nil)
}

// void says that nobody may go back to the cut, whatever lies on its storage.
func (ck *checkpoints) void(k *keptCut, reason string) {
	if k.state == CutVoided || k.state == cutUnbound {
		return
	}
	k.state, k.body, k.resolving = CutVoided, nil, false
	ck.putCut(k)
	ck.reportCut(ReportCutVoided, k, reason)
}

func (ck *checkpoints) reportCut(kind ReportKind, k *keptCut, reason string) {
	r := Report{Kind: kind, Cut: k.id, Step: k.step, Path: k.path, Reason: reason}
	if k.rank != cut.Group {
		r.Rank = uint32(k.rank)
	}
	ck.ledger.report(r)
}

// after says whether k is newer than x. In one life of a group or rank the step decides,
// because a cut may be asked for at an older step than the last one. Otherwise the order
// of freezing decides. Example: in one generation, the cut of step 140 is after that of
// step 130, even if step 130 was frozen later.
func (ck *checkpoints) after(k, x *keptCut) bool {
	if k.step != x.step && ck.model.byStep && k.rank == x.rank && k.generation == x.generation && (!ck.model.perRank || k.incarnation == x.incarnation) {
		return k.step > x.step
	}
	return k.order > x.order
}

// afterForeign says whether k is newer than a cut that this core does not keep.
func (k *keptCut) afterForeign(x *cut.Cut) bool {
	if x.Order > 0 { // else an older version froze it
		return k.order > x.Order
	}
	return k.epoch > x.Epoch || k.epoch == x.Epoch && k.step > x.Step
}

// isOf says whether k is one that rank r, or with nil the whole group, may go back to.
func (k *keptCut) isOf(r *rank) bool {
	return k.rank == cut.Group || r != nil && k.rank == int64(r.no)
}

// newest is the newest cut of the group, or of rank r, that is one of those wanted.
func (ck *checkpoints) newest(r *rank, wanted func(*keptCut) bool) (k *keptCut) {
	for _, x := range ck.cuts {
		if x.isOf(r) && wanted(x) && (k == nil || ck.after(x, k)) {
			k = x
		}
	}
	return k
}

// newestBound is the newest bound cut of the group, or of a private rank.
func (ck *checkpoints) newestBound(r *rank) *keptCut {
	return ck.newest(r, func(k *keptCut) bool { return k.state == CutBound })
}

// hasBound says whether any cut is bound.
func (ck *checkpoints) hasBound() bool {
	return slices.ContainsFunc(ck.cuts, func(k *keptCut) bool { return k.state == CutBound })
}
