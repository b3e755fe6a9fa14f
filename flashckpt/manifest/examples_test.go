package manifest

import (
	"time"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

func rankOf(n uint32) *uint32 { return &n }

func acked(segment, start, end int64) cut.Range {
	return cut.Range{Start: cut.Place{Segment: segment, Offset: start}, End: cut.Place{Segment: segment, Offset: end}}
}

// files is a dataset of two files. The first one and half of the second are settled, with a hole.
func files() cut.Dataset {
	return cut.Dataset{Name: "clicks", Unit: "bytes", Partitions: []cut.Partition{{
		Identity: "files:clicks", Number: 1, Complete: true, Done: 1, DoneUnits: cut.Units{Acked: 3000}, DoneRecords: &cut.Tally{Rows: 29, Oldest: 1763990000001, Newest: 1763999999999},
		Segments: []sources.Segment{
			{ID: 0, Start: 0, End: 1000, Sealed: true, Name: "day_1.tsv", Locator: []byte{1, 0, 0xFF, 'd', '1'}},
			{ID: 1, Start: 0, End: 2000, Sealed: true, Name: "day_2.tsv", Locator: []byte{1, 0, 0xFE, 'd', '2'}},
		},
		Passes: []cut.Pass{{
			Pass: 1, Low: cut.Place{Segment: 1, Offset: 250}, Units: cut.Units{Acked: 1610, Excluded: 40}, Records: &cut.Tally{Rows: 11, Untold: 310, Oldest: -5, Newest: 1764000000000},
			Ranges: cut.Ranges{acked(1, 300, 460), {Start: cut.Place{Segment: 1, Offset: 460}, End: cut.Place{Segment: 1, Offset: 500}, Kind: cut.Excluded}, acked(1, 1000, 1200)},
		}},
		Excluded: []cut.Exclusion{
			{Pass: 0, Piece: cut.Piece{Segment: 0, Start: 990, End: 1000}, Units: 10, Kind: "dead_letter", Reason: "line 12: field 3: \"x\" is no int64", When: 1764000000000},
			{Pass: 1, Piece: cut.Piece{Segment: 1, Start: 460, End: 500}, Units: 40, Kind: "quarantined", Reason: "headrace: by hand", When: 1764000001000},
		},
	}}}
}

func topic() cut.Dataset {
	return cut.Dataset{Name: "events", Unit: "records", Partitions: []cut.Partition{
		{Identity: "kafka:MkU3OEVBNTcwNTJENDM2Qk/AAAAAAAAAAAAAAAAAAAAAQ/0", Number: 2, Segments: []sources.Segment{
			{ID: 0, Start: 17, End: 9007199254740993, Name: "events/0", Locator: []byte{1, 2, 3}}},
			Passes: []cut.Pass{{Pass: 0, Low: cut.Place{Segment: 0, Offset: 9007199254740992}, Units: cut.Units{Acked: 9007199254740975}, Ranges: cut.Ranges{acked(0, 9007199254740995, 9007199254740996)}}}},
		{Identity: "kafka:MkU3OEVBNTcwNTJENDM2Qk/AAAAAAAAAAAAAAAAAAAAAQ/1", Number: 3, Estimated: true, Segments: []sources.Segment{}, Passes: []cut.Pass{}},
	}}
}

func shuffled() cut.Dataset {
	return cut.Dataset{Name: "images", Unit: "bytes", Shuffle: &cut.Shuffle{Seed: 18446744073709551615, Block: 64}, Partitions: []cut.Partition{{
		Identity: "files:images", Number: 4, Complete: true,
		Segments: []sources.Segment{
			{ID: 0, Start: 0, End: 100, Sealed: true, Name: "a.jsonl", Locator: []byte{9}},
			{ID: 1, Start: 0, End: 300, Sealed: true, Name: "b/c.jsonl", Locator: []byte{8}},
		},
		Passes: []cut.Pass{{Pass: 0, Low: cut.Place{Segment: 0, Offset: 128}, Units: cut.Units{Acked: 156}, Records: &cut.Tally{}, Ranges: cut.Ranges{acked(0, 200, 300)}}},
	}}}
}

func cutOf(model string, datasets ...cut.Dataset) cut.Cut {
	return cut.Cut{Version: Version, ID: 0x9f3c00000000abcd, Rank: cut.Group, Job: "default", Model: model, Epoch: 3, Generation: 2, WorldSize: 3, Step: 130, Exact: true, Datasets: append([]cut.Dataset{}, datasets...)}
}

func of(c cut.Cut, f ...File) *Manifest {
	var rank *uint32
	if c.Rank != cut.Group {
		rank = rankOf(uint32(c.Rank))
	}
	return &Manifest{Format: Format, Version: Version, Job: c.Job, Model: c.Model, Step: c.Step, Rank: rank, WorldSize: c.WorldSize,
		Created: time.Date(2026, 11, 21, 10, 50, 0, 123456000, time.UTC), Writer: "headrace-python 0.1.0", Files: f, Cut: c}
}

// dropped is files() with dropped records, which no full round has. They lie in a pass that is done,
// below the low mark, and above it.
func dropped() cut.Dataset {
	d := files()
	p := &d.Partitions[0]
	p.DoneUnits = cut.Units{Acked: 2980, Excluded: 10, Dropped: 10}
	q := &p.Passes[0]
	q.Units = cut.Units{Acked: 1550, Excluded: 40, Dropped: 60}
	q.Ranges = append(q.Ranges, cut.Range{Start: cut.Place{Segment: 1, Offset: 1500}, End: cut.Place{Segment: 1, Offset: 1540}, Kind: cut.Dropped})
	p.Dropped = []cut.Drop{
		{Pass: 0, Piece: cut.Piece{Segment: 0, Start: 900, End: 910}, Units: 10, Step: 60},
		{Pass: 1, Piece: cut.Piece{Segment: 1, Start: 230, End: 250}, Units: 20, Step: 130},
		{Pass: 1, Piece: cut.Piece{Segment: 1, Start: 1500, End: 1540}, Units: 40, Step: 130},
	}
	return d
}

// good returns manifests that every reader must accept.
func good() map[string]*Manifest {
	private := cutOf("private", files())
	private.Rank = 2
	shared := cutOf("shared", topic())
	shared.Exact = false
	sharded := of(cutOf("replicated", files(), topic(), shuffled()),
		File{"model-rank-0.safetensors", 4096, 0x0011223344556677, rankOf(0)},
		File{"model-rank-1.safetensors", 0, 0, rankOf(1)},
		File{"deeper/model-rank-2.safetensors", 1 << 40, 0xffffffffffffffff, rankOf(2)})
	sharded.Cut.Order, shared.Order = 12, 1<<53+1
	sharded.State = []byte(`{"kind":"numpy","arrays":{"w":{"file":"model-rank-0.safetensors"}}}`)
	needy := of(cutOf("replicated"))
	needy.Needs = []cut.ID{0x1, 0xfedcba9876543210}
	return map[string]*Manifest{
		"replicated":    of(cutOf("replicated", files()), File{Path: "state.safetensors", Size: 9, CRC: 0xae8b14860a799888}),
		"sharded":       sharded,
		"private":       of(private, File{Path: "état de l'art.bin", Size: 1, CRC: 1}),
		"shared":        of(shared),
		"nothing":       of(cutOf("replicated")),
		"needs_another": needy,
		"dropped":       of(cutOf("replicated", dropped())),
	}
}
