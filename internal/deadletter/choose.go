package deadletter

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/internal/advice"
)

// Reading collects the letters of a dataset. A letter that was written twice is there once. If a
// dataset was deleted and applied again, the letters of both have the same ids. So two letters
// with one id are one letter only if they have the same record; then the newer one counts.
type Reading struct {
	Dataset string
	All     []Letter

	seen map[string][]int // by id: their places in All
}

// Add reads letters, one a line.
func (r *Reading) Add(lines [][]byte) error {
	if r.seen == nil {
		r.All, r.seen = []Letter{}, map[string][]int{}
	}
	for _, line := range lines {
		l, err := Decode(line)
		if err != nil {
			return fmt.Errorf("a dead letter of dataset %s cannot be read: %w", r.Dataset, err)
		}
		same := r.seen[l.ID]
		if i := slices.IndexFunc(same, func(at int) bool { return r.All[at].sameRecord(&l) }); i >= 0 {
			l.again = i > 0
			r.All[same[i]] = l
			continue
		}
		l.again = len(same) > 0
		r.seen[l.ID], r.All = append(same, len(r.All)), append(r.All, l)
	}
	return nil
}

// Choose finds letters by id. Of several with one id it takes the newest.
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
