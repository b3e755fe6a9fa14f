package deadletter

import (
	"fmt"

	"github.com/headrace/headrace/internal/advice"
)

// Reading collects the letters of a dataset. A letter that was written twice is there once.
type Reading struct {
	Dataset string
	All     []Letter

	seen map[string]bool
}

// Add reads letters, one a line.
func (r *Reading) Add(lines [][]byte) error {
	if r.seen == nil {
		r.All, r.seen = []Letter{}, map[string]bool{}
	}
	for _, line := range lines {
		l, err := Decode(line)
		if err != nil {
			return fmt.Errorf("a dead letter of dataset %s cannot be read: %w", r.Dataset, err)
		}
		if !r.seen[l.ID] {
			r.seen[l.ID], r.All = true, append(r.All, l)
		}
	}
	return nil
}

// Choose finds letters by id.
func Choose(all []Letter, dataset string, ids []string) (some []Letter, err error) {
	at := map[string]int{}
	for i := range all {
		at[all[i].ID] = i
	}
	for _, id := range ids {
		i, ok := at[id]
		if !ok {
			return nil, advice.Usage.Errorf("`headrace deadletter list "+dataset+"` shows the ids", "dataset %s has no dead letter %s", dataset, id)
		}
		some = append(some, all[i])
	}
	return some, nil
}
