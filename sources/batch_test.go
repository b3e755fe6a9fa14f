package sources_test

import (
	"testing"

	"github.com/headrace/headrace/sources"
)

// A batch that held rows of columns is filled by a source of records next: after a backfill,
// both use the same batches. What is left of the columns would be taken for its rows.
func TestABatchThatIsUsedAgainHasNoColumns(t *testing.T) {
	b := sources.Batch{Arena: []byte("a"), Recs: make([]sources.Record, 1), Columns: make([]sources.Column, 2), End: 3}
	b.Reset()
	if len(b.Arena)+len(b.Recs)+len(b.Columns) != 0 || b.End != 0 {
		t.Errorf("%+v", b)
	}
}
