package sources_test

import (
	"testing"

	"github.com/headrace/headrace/sources"
)

// A batch that held rows of columns is next filled by a source of records, because after a backfill both
// use the same batches. If columns were left in it, they would count as its rows.
func TestABatchThatIsUsedAgainHasNoColumns(t *testing.T) {
	b := sources.Batch{Arena: []byte("a"), Recs: make([]sources.Record, 1), Columns: make([]sources.Column, 2), FirstRow: 1, Rows: 2, End: 3}
	b.Reset()
	if len(b.Arena)+len(b.Recs)+len(b.Columns)+b.Len() != 0 || b.FirstRow != 0 || b.End != 0 {
		t.Errorf("after Reset something is left in the batch: %+v", b)
	}
}

// Rows of columns have no Recs, but they are records, and the last one reaches the end of the range.
func TestRowsOfColumnsAreRecords(t *testing.T) {
	rows := sources.Batch{Columns: make([]sources.Column, 1), FirstRow: 7, Rows: 3, End: 20}
	recs := sources.Batch{Recs: []sources.Record{{Offset: 7, Next: 8}, {Offset: 8, Next: 9}, {Offset: 9, Next: 20}}, End: 20}
	for n := 3; n > 0; n-- {
		rows.Cut(n)
		recs.Cut(n)
		if rows.Len() != n || recs.Len() != n || rows.End != recs.End {
			t.Fatalf("%d rows up to %d, %d records up to %d, want %d", rows.Len(), rows.End, recs.Len(), recs.End, n)
		}
		for i := range n {
			a, b := rows.Rec(i), recs.Rec(i)
			if a.Offset != b.Offset || a.Next != b.Next || a.Time != 0 || a.Tombstone {
				t.Errorf("row %d of %d is %+v, want %+v", i, n, a, b)
			}
		}
	}
}

func TestAnEntryIsTheSameInHoweverManyBits(t *testing.T) {
	long, short := sources.Column{Entries: []uint32{5, 1 << 16}}, sources.Column{Short: []uint16{5, 1<<16 - 1}}
	if long.Entry(0) != 5 || short.Entry(0) != 5 || long.Entry(1) != 1<<16 || short.Entry(1) != sources.ShortEntries-1 {
		t.Error("an entry of the dictionary has another value")
	}
	if short.Reset(); len(short.Short) != 0 {
		t.Error("a column that was reset has entries")
	}
}
