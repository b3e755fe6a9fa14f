package shardsvc

import (
	"fmt"
	"slices"
)

// Who removes a checkpoint has its cut dropped first, and its files go after that.
// Between the two somebody may have found the manifest whole and go back to it: then
// the cut would be bound, and its files gone. So a cut that is given up is not one to
// go back to by name, and one that was gone back to is not given up before a newer one
// is there. What fell back to it because nothing newer verifies (a newest restore) may
// have it: retention leaves those.

// removedKept cuts are remembered, by this master: files go right after the drop.
const removedKept = 256

func (c *Core) remove(id uint64) {
	c.removed = append(c.removed, id)
	if n := len(c.removed) - removedKept; n > 0 {
		c.removed = slices.Delete(c.removed, 0, n)
	}
}

// isBack: the cut counts again.
func (c *Core) isBack(id uint64) {
	c.removed = slices.DeleteFunc(c.removed, func(x uint64) bool { return x == id })
}

// beingRemoved says why nobody goes back to a cut by its name; empty: it is free.
func (c *Core) beingRemoved(body *Cut) string {
	if body == nil || !slices.Contains(c.removed, body.ID) {
		return ""
	}
	return fmt.Sprintf("cut %016x (step %d) was given up, and its checkpoint is being removed: choose another one", body.ID, body.Step)
}

// goneBackTo: somebody went back to k, and there is nothing newer to go back to.
func (c *Core) goneBackTo(k *keptCut) bool {
	var r *rank
	choice := c.choice
	if k.rank != Group {
		r = c.rankOf(uint32(k.rank))
		choice = r.choice
	}
	return k.state == CutBound && k.id == choice && c.newestBound(r) == k
}
