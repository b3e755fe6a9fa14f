package shardsvc

import (
	"reflect"
	"testing"

	"github.com/headrace/headrace/sources"
)

func someCut() *Cut {
	return &Cut{ID: 7, Epoch: 2, Generation: 3, Rank: 1, Step: 40, World: 4, Exact: true, Datasets: []CutDataset{
		{Name: "clicks", Unit: "records", Shuffle: true, Seed: 9, Block: 16},
		{Name: "views", Unit: "bytes", Partitions: []CutPartition{{
			Number: 3, Identity: "kafka:c:t:0", Estimated: true, Complete: true, PassesDone: 1, Done: CutUnits{10, 2, 1},
			Segments: []sources.Segment{{ID: 0, Start: -5, End: 20, Sealed: true, Locator: []byte("l"), Name: "n"}, {ID: 4, Start: 3, End: 9}},
			Passes: []CutPass{{Pass: 1, Low: Place{0, 4}, Units: CutUnits{9, 1, 0},
				Ranges: []CutRange{{Place{0, 6}, Place{0, 9}, Acked}, {Place{0, 12}, Place{4, 5}, Excluded}}}},
			Excluded: []CutExcluded{{Pass: 1, Segment: 0, Start: 12, End: 20, Units: 8, Kind: "truncated", Reason: "gone", When: 5}},
		}}},
	}}
}

// FuzzCut: bytes of a stored cut are somebody else's: they decode to a cut that
// encodes to the same again, or to an error.
func FuzzCut(f *testing.F) {
	f.Add(someCut().Encode(nil))
	f.Add((&Cut{ID: 1, Rank: Group}).Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCut(b)
		if err != nil {
			return
		}
		again, err := DecodeCut(c.Encode(nil))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v became %+v (%v)", c, again, err)
		}
	})
}

func TestACutSurvivesItsEncoding(t *testing.T) {
	want := someCut()
	b := want.Encode(nil)
	got, err := DecodeCut(b)
	if err != nil || !reflect.DeepEqual(want, got) {
		t.Fatalf("%+v became %+v (%v)", want, got, err)
	}
	for n := range b {
		if _, err := DecodeCut(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for the whole", n, len(b))
		}
	}
}

// TestWhatCanNotBeACutIsRefused, before it changes anything.
func TestWhatCanNotBeACutIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Cut){
		"no id":                     func(c *Cut) { c.ID = 0 },
		"a rank below the group":    func(c *Cut) { c.Rank = -2 },
		"a negative step":           func(c *Cut) { c.Step = -1 },
		"a dataset twice":           func(c *Cut) { c.Datasets[0].Name = "views" },
		"no block":                  func(c *Cut) { c.Datasets[0].Block = 0 },
		"no identity":               func(c *Cut) { c.Datasets[1].Partitions[0].Identity = "" },
		"segments out of order":     func(c *Cut) { c.Datasets[1].Partitions[0].Segments[1].ID = 0 },
		"a segment that ends early": func(c *Cut) { c.Datasets[1].Partitions[0].Segments[0].End = -6 },
		"a pass that is done":       func(c *Cut) { c.Datasets[1].Partitions[0].Passes[0].Pass = 0 },
		"a range below low":         func(c *Cut) { c.Datasets[1].Partitions[0].Passes[0].Ranges[0].Start.Offset = 3 },
		"an empty range":            func(c *Cut) { c.Datasets[1].Partitions[0].Passes[0].Ranges[0].End.Offset = 6 },
		"negative units":            func(c *Cut) { c.Datasets[1].Partitions[0].Passes[0].Units.Acked = -1 },
		"nothing excluded":          func(c *Cut) { c.Datasets[1].Partitions[0].Excluded[0].End = 12 },
	} {
		c := someCut()
		if spoil(c); c.Check() == nil {
			t.Errorf("%s: was taken", name)
		}
		if _, err := DecodeCut(c.Encode(nil)); err == nil {
			t.Errorf("%s: was decoded", name)
		}
	}
}
