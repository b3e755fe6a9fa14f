package feed

import (
	"errors"
	"fmt"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/sources"
)

// The master tries a range without end only if its source did not answer (kind "away").
func TestOnlyASourceThatIsAwayIsTriedForEver(t *testing.T) {
	ds := &Dataset{Name: "clicks"}
	for want, err := range map[fault]error{
		{kind: "away"}:                &sources.Temporary{Err: errors.New("refused"), Away: true},
		{kind: "io"}:                  &sources.Temporary{Err: errors.New("a checksum")},
		{kind: "io", permanent: true}: errors.New("no permission"),
	} {
		got := faultOf(ds, "a/0", fmt.Errorf("reading: %w", err))
		if got.message = ""; got != want {
			t.Errorf("the error %v became %+v, want %+v", err, got, want)
		}
	}
}

// The dead letter of a row of columns has no bytes and size -1, even if the row was too large to
// be read and its size is known.
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
		t.Errorf("the dead letter of a row is %v, want [7, 8) with size -1 and no bytes", row)
	}
	line := alone(&sources.TooLarge{Position: sources.Position{Offset: 7}, Next: 100_008, Size: 100_000, Limit: 1000, Value: make([]byte, 70_000)})
	if line.Size != 100_000 || len(line.Value) != badValueBytes {
		t.Errorf("the dead letter of a line has size %d and %d bytes, want size 100000 and %d bytes", line.Size, len(line.Value), badValueBytes)
	}
	empty := alone(&sources.Malformed{Position: sources.Position{Offset: 7}, Next: 23})
	if empty.Size != 0 {
		t.Errorf("the dead letter of an empty record is %v, want size 0", empty)
	}
}
