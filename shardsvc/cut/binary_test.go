package cut

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/headrace/headrace/sources"
)

// someCut has one of everything that the binary form has.
func someCut() *Cut {
	return &Cut{ID: 7, Epoch: 2, Generation: 3, Rank: 1, Step: 40, WorldSize: 4, Exact: true, Datasets: []Dataset{
		{Name: "clicks", Unit: "records", Shuffle: &Shuffle{Seed: 9, Block: 16}},
		{Name: "views", Unit: "bytes", Partitions: []Partition{{
			Number: 3, Identity: "kafka:c:t:0", Estimated: true, Complete: true, Done: 1, DoneUnits: Units{10, 2, 1},
			DoneRecords: &Tally{Rows: 7, Untold: 2, Oldest: 1700000000001, Newest: 1700000000009},
			Segments:    []sources.Segment{{ID: 0, Start: -5, End: 20, Sealed: true, Locator: []byte("l"), Name: "n"}, {ID: 4, Start: 3, End: 9}},
			Passes: []Pass{{Pass: 1, Low: Place{0, 4}, Units: Units{9, 1, 0}, Records: &Tally{Rows: 3, Oldest: 1700000000000, Newest: 1700000000002},
				Ranges: Ranges{{Place{0, 6}, Place{0, 9}, Acked}, {Place{0, 12}, Place{4, 5}, Excluded}}}},
			Excluded: []Exclusion{{Pass: 1, Piece: Piece{0, 12, 20}, Units: 8, Kind: "truncated", Reason: "gone", When: 5}},
		}}},
		{Name: "exact", Unit: "records", Shuffle: &Shuffle{Seed: 1<<63 + 5, Block: 4, InOrder: true, VirtualRanks: 8}, Partitions: []Partition{{
			Number: 70000, Identity: "files:exact#3/8",
			Passes: []Pass{{Low: Place{0, 9}, Units: Units{9, 0, 0}, Records: &Tally{Rows: 9}}},
		}}},
	}}
}

// recorded has the bytes of someCut as older stores have them, by version. Those of version 3
// were written before the code moved into this package.
var recorded = map[byte]string{
	3: "03070203025004010306636c69636b73077265636f726473010920000000057669657773056279746573000000000001030b6b61666b613a633a743a300101011404020e0482a0abfef962100200092801016c016e0806120000000101120200060080a0abfef9620400080200040006000006080a01010100182810097472756e636174656404676f6e650a056578616374077265636f726473018580808080808080800108010801f0a2040f66696c65733a657861637423332f38000000000000000000000001001200001200000000120000",
	2: "02070203025004010306636c69636b73077265636f726473010920000000057669657773056279746573000000000001030b6b61666b613a633a743a300101011404020200092801016c016e080612000000010112020000080200040006000006080a01010100182810097472756e636174656404676f6e650a056578616374077265636f726473018580808080808080800108010801f0a2040f66696c65733a657861637423332f3800000000000000010012000000120000",
	1: "01070203025004010306636c69636b73077265636f7264730109200005766965777305627974657300000001030b6b61666b613a633a743a300101011404020200092801016c016e080612000000010112020000080200040006000006080a01010100182810097472756e636174656404676f6e650a056578616374077265636f72647301858080808080808080010801f0a2040f66696c65733a657861637423332f3800000000000000010012000000120000",
}

func TestStoredCutsOfEarlierVersionsAreRead(t *testing.T) {
	for version, text := range recorded {
		b, err := hex.DecodeString(text)
		if err != nil || b[0] != version {
			t.Fatal(version, err)
		}
		want := someCut()
		for i := range want.Datasets {
			d := &want.Datasets[i]
			if version < 2 && d.Shuffle != nil {
				d.Shuffle.InOrder, d.Shuffle.VirtualRanks = false, 0
			}
			for j := range d.Partitions {
				if p := &d.Partitions[j]; version < 3 {
					p.DoneRecords, p.Passes[0].Records = nil, nil
				}
			}
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("version %d became %+v (%v), want %+v", version, got, err, want)
			continue
		}
		if version == binaryVersion && !bytes.Equal(got.Append(nil), b) {
			t.Errorf("version %d is written as %x, it was %s", version, got.Append(nil), text)
		}
	}
}

func TestTheBytesOfAStoredGroupCutStay(t *testing.T) {
	want := &Cut{ID: 1<<64 - 1, Rank: Group, Step: 1 << 40, WorldSize: 1}
	const text = "03ffffffffffffffffff01000001808080808040010000"
	if got := hex.EncodeToString(want.Append(nil)); got != text {
		t.Errorf("%s, want %s", got, text)
	}
	b, _ := hex.DecodeString(text)
	if got, err := Decode(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNoPartOfAStoredCutIsTakenForTheWhole(t *testing.T) {
	b := someCut().Append(nil)
	for n := range b {
		if _, err := Decode(b[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := Decode(append(b, 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a cut with a byte after its end was answered %v, want an error", err)
	}
	b[0] = binaryVersion + 1
	if _, err := Decode(b); !errors.Is(err, ErrNewer) {
		t.Errorf("a cut of a newer version was answered %v, want an error that says so", err)
	}
}

func TestWhatCannotBeAStoredCutIsRefused(t *testing.T) {
	views := func(c *Cut) *Partition { return &c.Datasets[1].Partitions[0] }
	for field, spoil := range map[string]func(*Cut){
		"id":                                 func(c *Cut) { c.ID = 0 },
		"rank":                               func(c *Cut) { c.Rank = -2 },
		"step":                               func(c *Cut) { c.Step = -1 },
		"datasets[1].name":                   func(c *Cut) { c.Datasets[0].Name = "views" },
		"datasets[0].shuffle.block":          func(c *Cut) { c.Datasets[0].Shuffle.Block = 0 },
		"datasets[1].partitions[0].identity": func(c *Cut) { views(c).Identity = "" },
		"datasets[2].partitions[0].identity": func(c *Cut) { c.Datasets[2].Partitions[0].Identity = "files:exact#8/8" },
		"datasets[1].partitions[0].segments[1].id":               func(c *Cut) { views(c).Segments[1].ID = 0 },
		"datasets[1].partitions[0].segments[0]":                  func(c *Cut) { views(c).Segments[0].End = -6 },
		"datasets[1].partitions[0].passes[0].pass":               func(c *Cut) { views(c).Passes[0].Pass = 0 },
		"datasets[1].partitions[0].passes[0].units":              func(c *Cut) { views(c).Passes[0].Units.Acked = -1 },
		"datasets[1].partitions[0].passes[0].records.untold":     func(c *Cut) { views(c).Passes[0].Records.Untold = 10 },
		"datasets[1].partitions[0].passes[0].ranges.acked[0]":    func(c *Cut) { views(c).Passes[0].Ranges[0].Start.Offset = 3 },
		"datasets[1].partitions[0].passes[0].ranges.excluded[0]": func(c *Cut) { views(c).Passes[0].Ranges[1].Start.Offset = 8 },
		"datasets[1].partitions[0].passes[0].ranges.kind 3[0]":   func(c *Cut) { views(c).Passes[0].Ranges[1].Kind = kinds },
		"datasets[1].partitions[0].excluded[0].range":            func(c *Cut) { views(c).Excluded[0].Piece.End = 12 },
	} {
		c := someCut()
		spoil(c)
		_, err := Decode(c.Append(nil))
		if e, ok := errors.AsType[*Error](err); !ok || e.Field != field || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// FuzzDecode: any bytes decode to an error, or to a cut that stays the same when it is
// encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add(someCut().Append(nil))
	f.Add((&Cut{ID: 1, Rank: Group}).Append(nil))
	for _, text := range recorded {
		b, _ := hex.DecodeString(text)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again, err := Decode(c.Append(nil))
		if err != nil || !bytes.Equal(again.Append(nil), c.Append(nil)) {
			t.Fatalf("%+v became %+v (%v)", c, again, err)
		}
	})
}

// A cut that drops nothing keeps the older version, so an older Headrace can read it.
func TestWhatIsDroppedIsStoredAndACutWithoutItHasTheOlderVersion(t *testing.T) {
	c := &Cut{ID: 7, Rank: Group, Step: 12, WorldSize: 2, Datasets: []Dataset{{Name: "d", Unit: "bytes", Partitions: []Partition{{
		Identity: "p", Number: 1, Passes: []Pass{{Low: Place{0, 50}, Units: Units{Acked: 40, Dropped: 10}}},
	}}}}}
	p := &c.Datasets[0].Partitions[0]
	if b := c.Append(nil); b[0] != recordsVersion {
		t.Fatalf("a cut without drops is stored in version %d, want %d", b[0], recordsVersion)
	}
	p.Dropped = []Drop{{Piece: Piece{0, 10, 15}, Units: 5, Step: 11}, {Piece: Piece{0, 45, 50}, Units: 5, Step: 12}}
	b := c.Append(nil)
	got, err := Decode(b)
	if err != nil || b[0] != binaryVersion {
		t.Fatal(b[0], err)
	}
	if !reflect.DeepEqual(got.Datasets[0].Partitions[0].Dropped, p.Dropped) {
		t.Fatalf("the drops were read as %+v, want %+v", got.Datasets[0].Partitions[0].Dropped, p.Dropped)
	}
	p.Dropped[1].Piece.End = 51
	if _, err := Decode(c.Append(nil)); err == nil {
		t.Fatal("a drop that is not settled was read")
	}
}
