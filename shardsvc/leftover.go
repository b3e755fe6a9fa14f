package shardsvc

import (
	"fmt"
	"slices"
)

// A dataset may have something at its source: pushed records, a subscription. If it is removed
// and that stays, a new dataset of the same name would find it. So the core keeps a Leftover
// from the Step that removes the dataset until the source is released.

// Leftover is a removed dataset whose source still has something of it.
type Leftover struct {
	ID   DatasetID
	Name string
	Spec []byte // opaque to the core
}

func leftoverKey(id DatasetID) func([]byte) []byte {
	return func(b []byte) []byte { return appendNumbers(b, keyLeftover, id) }
}

func (lg *ledger) keepLeftover(x Leftover) {
	lg.leftovers = append(lg.leftovers, x)
	v := leftoverValue{x.Name, x.Spec}
	lg.fx.put(Set, leftoverKey(x.ID), v.append)
}

func (lg *ledger) sourceReleased(id DatasetID) {
	i := slices.IndexFunc(lg.leftovers, func(x Leftover) bool { return x.ID == id })
	if i < 0 {
		lg.rejected("nothing of dataset %d is left at its source", id)
		return
	}
	lg.leftovers = slices.Delete(lg.leftovers, i, i+1)
	lg.fx.put(Delete, leftoverKey(id), nil)
}

func (lg *ledger) loadLeftovers(all []stored[leftoverValue]) error {
	for _, s := range all {
		if s.key.ds >= lg.nextDS || lg.dataset(s.key.ds) != nil {
			return fmt.Errorf("stored %s: there is a dataset of this number, or it is not below the next one, %d", s.key, lg.nextDS)
		}
		lg.leftovers = append(lg.leftovers, Leftover{s.key.ds, s.val.name, s.val.spec})
	}
	return nil
}

// Leftovers returns the removed datasets whose sources still have something of them.
func (lg *ledger) Leftovers() []Leftover { return slices.Clone(lg.leftovers) }
