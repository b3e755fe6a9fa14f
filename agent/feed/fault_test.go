package feed

import (
	"errors"
	"fmt"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/sources"
)

// The master tries a range again for ever only if nobody answered at its source.
func TestOnlyASourceThatIsAwayIsTriedForEver(t *testing.T) {
	ds := &Dataset{Name: "clicks"}
	for want, err := range map[fault]error{
		{kind: "away"}:                &sources.Temporary{Err: errors.New("refused"), Away: true},
		{kind: "io"}:                  &sources.Temporary{Err: errors.New("a checksum")},
		{kind: "io", permanent: true}: errors.New("no permission"),
	} {
		got := faultOf(ds, "a/0", fmt.Errorf("reading: %w", err))
		if got.message = ""; got != want {
			t.Errorf("%v: %+v, want %+v", err, got, want)
		}
	}
}

// The dead letter of a row of columns has no bytes and size -1, also if the row was too large to
// be read.
func TestARowOfColumnsThatIsTooLargeHasNoSize(t *testing.T) {
	alone := func(err error) *pb.BadRecord {
		bad, ok := sources.StandsAlone(err)
		if !ok {
			t.Fatal(err)
		}
		return recordAlone(bad, "too large")
	}
	row := alone(&sources.TooLarge{Position: sources.Position{Offset: 7}, Next: 8, Size: 1108, Limit: 1000})
	if row.Size != -1 || len(row.Value) != 0 || row.Start != 7 || row.End != 8 {
		t.Error(row)
	}
	line := alone(&sources.TooLarge{Position: sources.Position{Offset: 7}, Next: 100_008, Size: 100_000, Limit: 1000, Value: make([]byte, 70_000)})
	if line.Size != 100_000 || len(line.Value) != badValueBytes {
		t.Errorf("%d bytes, %d of them", line.Size, len(line.Value))
	}
	empty := alone(&sources.Malformed{Position: sources.Position{Offset: 7}, Next: 23})
	if empty.Size != 0 {
		t.Error(empty)
	}
}
