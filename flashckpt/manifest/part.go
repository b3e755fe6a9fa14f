package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
)

// PartName is the file in which a rank of a sharded save says what it wrote.
func PartName(rank uint32) string { return "part-" + strconv.FormatUint(uint64(rank), 10) + ".json" }

func partName(base string) bool {
	rank, ok := strings.CutPrefix(base, "part-")
	rank, found := strings.CutSuffix(rank, ".json")
	_, err := strconv.ParseUint(rank, 10, 32)
	return ok && found && err == nil
}

// Parts reads the parts of a sharded save. missing are the ranks whose part is
// not there yet, or is of another attempt; an error is about a part that is
// damaged.
func Parts(from FS, folder string, cut cut.ID, world uint32) (parts []*Part, missing []uint32, err error) {
	for rank := range world {
		path := Join(folder, PartName(rank))
		b, err := from.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, rank)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		p, err := ParsePart(b)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if p.Cut != cut {
			missing = append(missing, rank)
			continue
		}
		if p.Rank != rank || p.WorldSize != world {
			return nil, nil, fmt.Errorf("%s: it is of rank %d of %d, expected %d of %d", path, p.Rank, p.WorldSize, rank, world)
		}
		parts = append(parts, p)
	}
	return parts, missing, nil
}

// Merge gives m the files of all parts, each with its rank. It refuses a set that
// is not whole, or of another step.
func (m *Manifest) Merge(parts []*Part) error {
	if len(parts) != int(m.WorldSize) {
		return fmt.Errorf("%d parts of %d", len(parts), m.WorldSize)
	}
	for i, p := range parts {
		if p.Cut != m.Cut.ID || p.Step != m.Step || p.Rank != uint32(i) {
			return fmt.Errorf("part %d is of rank %d, cut %v, step %d; expected rank %d, cut %v, step %d", i, p.Rank, p.Cut, p.Step, i, m.Cut.ID, m.Step)
		}
		for _, f := range slices.Clone(p.Files) {
			f.Rank = &p.Rank
			m.Files = append(m.Files, f)
		}
	}
	return nil
}
