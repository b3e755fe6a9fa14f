package shardsvc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// To remove a checkpoint, a program first drops its cut and then deletes its files. In
// between, another process may find the manifest whole and go back to it. The cut would
// then be bound, and its files gone. So there are two rules. Nobody goes back by name to a
// cut that was given up. And a cut that somebody went back to is not given up before a
// newer one is bound. A newest restore may fall back to a cut that was given up, if nothing
// newer verifies: retention leaves such checkpoints alone.

// removedKept is how many cuts that were given up are remembered. Their files are deleted
// right after the drop.
const removedKept = 256

// removedCut is one `r` key. number grows, so the oldest ones are forgotten first. It is
// no state of a kept cut: the core may never have kept this one (another master froze it),
// or still need its body (cutUnbound).
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

// isBack forgets that a cut was given up: it counts again, or was given up long ago.
func (ck *checkpoints) isBack(id uint64) {
	i := slices.IndexFunc(ck.removed, func(r removedCut) bool { return r.id == id })
	if i < 0 {
		return
	}
	ck.fx.put(Delete, ck.removed[i].key, nil)
	ck.removed = slices.Delete(ck.removed, i, i+1)
}

// beingRemoved says why nobody may go back to a cut by its name; empty: everybody may.
func (ck *checkpoints) beingRemoved(body *cut.Cut) string {
	if body == nil || !slices.ContainsFunc(ck.removed, func(r removedCut) bool { return r.id == uint64(body.ID) }) {
		return ""
	}
	return fmt.Sprintf("the checkpoint of step %d (cut %v) is being removed: choose another one", body.Step, body.ID)
}

// goneBackTo says whether somebody went back to k and nothing newer is bound.
func (ck *checkpoints) goneBackTo(k *keptCut) bool {
	var r *rank
	choice := ck.choice
	if k.rank != cut.Group {
		r = ck.group.rankOf(uint32(k.rank))
		choice = ck.past(r).choice
	}
	return k.state == CutBound && k.id == choice && ck.newestBound(r) == k
}
