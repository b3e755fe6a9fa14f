package shardsvc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// Who removes a checkpoint has its cut dropped first, and its files go after that.
// Between the two somebody may have found the manifest whole and go back to it: then
// the cut would be bound, and its files gone. So a cut that is given up is not one to
// go back to by name, and one that was gone back to is not given up before a newer one
// is there. What fell back to it because nothing newer verifies (a newest restore) may
// have it: retention leaves those.

// removedKept cuts are remembered: files go right after the drop.
const removedKept = 256

// removedCut is one `r` key. number grows with each.
type removedCut struct{ id, number uint64 }

func (r removedCut) key(b []byte) []byte { return be.AppendUint64(append(b, keyRemoved), r.id) }

func (ck *checkpoints) loadRemoved(all []stored[removedValue]) {
	for _, s := range all {
		ck.removed = append(ck.removed, removedCut{s.key.cut, s.val.number})
	}
	slices.SortFunc(ck.removed, func(a, b removedCut) int { return cmp.Compare(a.number, b.number) })
}

func (ck *checkpoints) remove(id uint64) {
	ck.isBack(id)
	r := removedCut{id: id, number: 1}
	if n := len(ck.removed); n > 0 {
		r.number = ck.removed[n-1].number + 1
	}
	ck.removed = append(ck.removed, r)
	v := removedValue{r.number}
	ck.fx.put(Set, r.key, v.append)
	if len(ck.removed) > removedKept {
		ck.isBack(ck.removed[0].id)
	}
}

// isBack: the cut counts again, or was removed long ago.
func (ck *checkpoints) isBack(id uint64) {
	i := slices.IndexFunc(ck.removed, func(r removedCut) bool { return r.id == id })
	if i < 0 {
		return
	}
	ck.fx.put(Delete, ck.removed[i].key, nil)
	ck.removed = slices.Delete(ck.removed, i, i+1)
}

// beingRemoved says why nobody goes back to a cut by its name; empty: it is free.
func (ck *checkpoints) beingRemoved(body *cut.Cut) string {
	if body == nil || !slices.ContainsFunc(ck.removed, func(r removedCut) bool { return r.id == uint64(body.ID) }) {
		return ""
	}
	return fmt.Sprintf("cut %v (step %d) was given up, and its checkpoint is being removed: choose another one", body.ID, body.Step)
}

// goneBackTo: somebody went back to k, and there is nothing newer to go back to.
func (ck *checkpoints) goneBackTo(k *keptCut) bool {
	var r *rank
	choice := ck.choice
	if k.rank != cut.Group {
		r = ck.group.rankOf(uint32(k.rank))
		choice = ck.past(r).choice
	}
	return k.state == CutBound && k.id == choice && ck.newestBound(r) == k
}
