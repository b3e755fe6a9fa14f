package manifest

import (
	"time"
)

func rankOf(n uint32) *uint32 { return &n }

// files is a dataset of two files, of which the first and half of the second are
// settled, with a hole.
func files() Dataset {
	return Dataset{Name: "clicks", Unit: "bytes", Partitions: []Partition{{
		Identity: "files:clicks", Number: 1, Complete: true, Done: 1, DoneUnits: Units{Acked: 3000}, DoneRecords: &Records{Rows: 29, Oldest: 1763990000001, Newest: 1763999999999},
		Segments: []Segment{
			{ID: 0, Start: 0, End: 1000, Sealed: true, Name: "day_1.tsv", Locator: []byte{1, 0, 0xFF, 'd', '1'}},
			{ID: 1, Start: 0, End: 2000, Sealed: true, Name: "day_2.tsv", Locator: []byte{1, 0, 0xFE, 'd', '2'}},
		},
		Passes: []Pass{{
			Pass: 1, Low: Place{1, 250}, Units: Units{Acked: 1610, Excluded: 40}, Records: &Records{Rows: 11, Untold: 310, Oldest: -5, Newest: 1764000000000},
			Ranges: Ranges{Acked: []Range{{1, 300, 460}, {1, 1000, 1200}}, Excluded: []Range{{1, 460, 500}}},
		}},
		Excluded: []Excluded{
			{Pass: 0, Range: Range{0, 990, 1000}, Units: 10, Kind: "dead_letter", Reason: "line 12: field 3: \"x\" is no int64", When: 1764000000000},
			{Pass: 1, Range: Range{1, 460, 500}, Units: 40, Kind: "quarantined", Reason: "headrace: by hand", When: 1764000001000},
		},
	}}}
}

func topic() Dataset {
	return Dataset{Name: "events", Unit: "records", Partitions: []Partition{
		{Identity: "kafka:MkU3OEVBNTcwNTJENDM2Qk/AAAAAAAAAAAAAAAAAAAAAQ/0", Number: 2, Segments: []Segment{
			{ID: 0, Start: 17, End: 9007199254740993, Name: "events/0", Locator: []byte{1, 2, 3}}},
			Passes: []Pass{{Pass: 0, Low: Place{0, 9007199254740992}, Units: Units{Acked: 9007199254740975}, Ranges: Ranges{Acked: []Range{{0, 9007199254740995, 9007199254740996}}}}}},
		{Identity: "kafka:MkU3OEVBNTcwNTJENDM2Qk/AAAAAAAAAAAAAAAAAAAAAQ/1", Number: 3, Estimated: true, Segments: []Segment{}, Passes: []Pass{}},
	}}
}

func shuffled() Dataset {
	return Dataset{Name: "images", Unit: "bytes", Shuffle: &Shuffle{Seed: 18446744073709551615, Block: 64}, Partitions: []Partition{{
		Identity: "files:images", Number: 4, Complete: true,
		Segments: []Segment{
			{ID: 0, Start: 0, End: 100, Sealed: true, Name: "a.jsonl", Locator: []byte{9}},
			{ID: 1, Start: 0, End: 300, Sealed: true, Name: "b/c.jsonl", Locator: []byte{8}},
		},
		Passes: []Pass{{Pass: 0, Low: Place{0, 128}, Units: Units{Acked: 156}, Records: &Records{}, Ranges: Ranges{Acked: []Range{{0, 200, 300}}}}},
	}}}
}

func cut(model string, datasets ...Dataset) Cut {
	return Cut{Version: Version, ID: 0x9f3c00000000abcd, Job: "default", Model: model, Epoch: 3, Generation: 2, WorldSize: 3, Step: 130, Exact: true, Datasets: datasets}
}

func of(c Cut, f ...File) *Manifest {
	return &Manifest{Format: Format, Version: Version, Job: c.Job, Model: c.Model, Step: c.Step, Rank: c.Rank, WorldSize: c.WorldSize,
		Created: time.Date(2026, 11, 21, 10, 50, 0, 123456000, time.UTC), Writer: "headrace-python 0.1.0", Files: f, Cut: c}
}

// good are manifests that every reader must take.
func good() map[string]*Manifest {
	private := cut("private", files())
	private.Rank = rankOf(2)
	shared := cut("shared", topic())
	shared.Exact = false
	sharded := of(cut("replicated", files(), topic(), shuffled()),
		File{"model-rank-0.safetensors", 4096, 0x0011223344556677, rankOf(0)},
		File{"model-rank-1.safetensors", 0, 0, rankOf(1)},
		File{"deeper/model-rank-2.safetensors", 1 << 40, 0xffffffffffffffff, rankOf(2)})
	sharded.Cut.Order, shared.Order = 12, 1<<53+1
	sharded.State = []byte(`{"kind":"numpy","arrays":{"w":{"file":"model-rank-0.safetensors"}}}`)
	needy := of(cut("replicated"))
	needy.Needs = []CutID{0x1, 0xfedcba9876543210}
	return map[string]*Manifest{
		"replicated":    of(cut("replicated", files()), File{Path: "state.safetensors", Size: 9, CRC: 0xae8b14860a799888}),
		"sharded":       sharded,
		"private":       of(private, File{Path: "état de l'art.bin", Size: 1, CRC: 1}),
		"shared":        of(shared),
		"nothing":       of(cut("replicated")),
		"needs_another": needy,
	}
}
