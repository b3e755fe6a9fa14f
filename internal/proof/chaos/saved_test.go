package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// sample is a checkpoint with 60 of 100 records: the first 50 of one file, and the last 10.
type sample struct {
	in     *input
	folder string
	m      *manifest.Manifest
}

func newSample(t *testing.T) *sample {
	t.Helper()
	dir := t.TempDir()
	in := &input{name: "small", format: "lines", records: 100, passes: 1, root: dir}
	if err := in.write(rand.New(rand.NewPCG(1, 1))); err != nil {
		t.Fatal(err)
	}
	last := in.places["part-3.lines"]
	end := int64(1 << 20)
	segment := func(id int64, name string) sources.Segment {
		return sources.Segment{ID: id, End: end, Sealed: true, Name: name, Locator: []byte("here")}
	}
	p := cut.Partition{
		Identity: "files:small", Complete: true,
		Segments: []sources.Segment{segment(1, "part-0.lines"), segment(2, "part-2.lines"), segment(3, "part-3.lines")},
		Passes: []cut.Pass{{
			Low:    cut.Place{Segment: 3, Offset: placeOf(t, last, 50)},
			Units:  cut.Units{Acked: 1 << 21},
			Ranges: cut.Ranges{{Start: cut.Place{Segment: 3, Offset: placeOf(t, last, 90)}, End: cut.Place{Segment: 3, Offset: end}}},
		}},
	}
	rank := uint32(0)
	body := cut.Cut{
		Version: cut.Version, ID: 7, Job: "chaos", Model: "private", Epoch: 1, Generation: 1, Rank: 0, WorldSize: 1, Step: 3, Exact: true,
		Datasets: []cut.Dataset{{Name: "small", Unit: "bytes", Partitions: []cut.Partition{p}}},
	}
	return &sample{in: in, folder: filepath.Join(dir, "checkpoint"), m: &manifest.Manifest{
		Format: manifest.Format, Version: manifest.Version, Job: "chaos", Model: "private", Step: 3, Rank: &rank, WorldSize: 1,
		Created: time.Unix(1, 0).UTC(), Cut: body,
	}}
}

func placeOf(t *testing.T, all []place, id int) int64 {
	t.Helper()
	for _, p := range all {
		if p.id == id {
			return p.at
		}
	}
	t.Fatalf("record %d is not in that file", id)
	return 0
}

// judged writes the checkpoint with a model that has seen each record so often, and judges it.
func (s *sample) judged(t *testing.T, m model) (v Verdict, all Saves) {
	t.Helper()
	on := manifest.OS{}
	folder, err := manifest.Begin(on, filepath.Dir(s.folder), filepath.Base(s.folder))
	if err != nil {
		t.Fatal(err)
	}
	f, err := manifest.WriteFile(on, folder, "state.safetensors", bytes.NewReader(safetensors(m)))
	if err != nil {
		t.Fatal(err)
	}
	s.m.Files = []manifest.File{f}
	path := filepath.Join(folder, manifest.FileName)
	if err := manifest.WriteManifest(on, path, s.m); err != nil {
		t.Fatal(err)
	}
	loaded, err := manifest.Load(on, path)
	if err != nil {
		t.Fatal(err)
	}
	checkOne(t.Context(), "sample", folder, loaded, []*input{s.in}, &v, &all)
	return v, all
}

func safetensors(m model) []byte {
	head := fmt.Sprintf(`{"sums":{"dtype":"U64","shape":[%d],"data_offsets":[0,%d]},"seen":{"dtype":"U8","shape":[%d],"data_offsets":[%[2]d,%[4]d]}}`,
		len(m.sums), 8*len(m.sums), len(m.seen), 8*len(m.sums)+len(m.seen))
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	for _, n := range m.sums {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	return append(out, m.seen...)
}

// ofCut is how often each record is in the model that the cut describes.
func ofCut() []uint8 {
	seen := make([]uint8, 100)
	for id := range seen {
		if id < 50 || id >= 90 {
			seen[id] = 1
		}
	}
	return seen
}

func TestACheckpointWithTheRecordsOfItsCutIsRight(t *testing.T) {
	s := newSample(t)
	if v, _ := s.judged(t, weighed([]*input{s.in}, ofCut())); v.Lost+v.Twice+len(v.Wrong) != 0 {
		t.Error(v)
	}
}

func TestAPlantedLossAndAPlantedRepeatInACheckpointAreSeen(t *testing.T) {
	for _, c := range []struct {
		name        string
		id          int
		seen        uint8
		lost, twice int
	}{
		{"a record of the cut is missing", 49, 0, 1, 0},
		{"the last record is missing", 99, 0, 1, 0},
		{"a record of the cut is there twice", 0, 2, 0, 1},
		{"a record above the low mark is there", 50, 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSample(t)
			seen := ofCut()
			seen[c.id] = c.seen
			if v, _ := s.judged(t, weighed([]*input{s.in}, seen)); v.Lost != c.lost || v.Twice != c.twice || len(v.Wrong) != 1 {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestAChangedPayloadIsSeenInTheSum(t *testing.T) {
	s := newSample(t)
	m := weighed([]*input{s.in}, ofCut())
	m.sums[0] += recordHash(3, check(4)) - recordHash(3, check(3))
	if v, _ := s.judged(t, m); v.Lost != 1 || !strings.Contains(strings.Join(v.Wrong, ""), "payload") {
		t.Errorf("%+v", v)
	}
}

func TestASharedCheckpointMayBeAheadOfItsCutAndNeverBehind(t *testing.T) {
	s := newSample(t)
	s.m.Model, s.m.Cut.Model, s.m.Rank, s.m.Cut.Rank, s.m.Cut.Exact = "shared", "shared", nil, cut.Group, false
	seen := ofCut()
	seen[60] = 1
	if v, all := s.judged(t, weighed([]*input{s.in}, seen)); len(v.Wrong) != 0 || all.Inexact != 1 || all.Ahead != 1 {
		t.Errorf("%+v %+v", v, all)
	}
	seen[10] = 0
	if v, _ := s.judged(t, weighed([]*input{s.in}, seen)); v.Lost != 1 {
		t.Errorf("%+v", v)
	}
}

func TestTheEndIsEverythingOnceOverAllRanks(t *testing.T) {
	in := []*input{{name: "small", records: 6, passes: 1}}
	half := func(a, b int) model {
		seen := make([]uint8, 6)
		for id := a; id < b; id++ {
			seen[id] = 1
		}
		return weighed(in, seen)
	}
	for _, c := range []struct {
		name        string
		a, b        model
		lost, twice int
	}{
		{"all once", half(0, 3), half(3, 6), 0, 0},
		{"one is in no model", half(0, 3), half(4, 6), 1, 0},
		{"one is in two models", half(0, 4), half(3, 6), 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			crew := &crew{o: Options{Model: "private"}, inputs: in}
			var v Verdict
			crew.checkEnd(map[int]*life{0: {model: 1, done: true}, 1: {rank: 1, model: 2, done: true}}, map[cut.ID]kept{1: {models: []model{c.a}}, 2: {models: []model{c.b}}}, &v)
			if v.Lost != c.lost || v.Twice != c.twice {
				t.Errorf("%+v", v)
			}
		})
	}
}

// Chunks 4, 5 and 6 of a landing had 3, 2 and 4 records. They were deleted, so a cut names them as one
// segment: chunk 6 [-5, 4).
func TestACutOfDeletedChunksNamesTheRecordsOfAllOfThem(t *testing.T) {
	in := &input{name: "pushed", records: 20, passes: 1, partitions: 2, live: true, queue: &landing{}}
	id := 0
	put := func(partition int, chunk string, records int) {
		for at := range records {
			in.putIn(partition, chunk, int64(at), id)
			id++
		}
	}
	put(0, "chunk-1", 2) // 0, 1
	put(1, "chunk-2", 2) // 2, 3: of the other partition
	put(0, "chunk-4", 3) // 4 to 6
	put(1, "chunk-3", 1) // 7
	put(0, "chunk-5", 2) // 8, 9
	put(0, "chunk-6", 4) // 10 to 13
	put(0, "chunk-7", 3) // 14 to 16
	in.same("chunk-6", "chunk-6-of-another-attempt")

	named := func(pieces ...cut.Range) (map[key]bool, error) {
		p := cut.Partition{
			Identity: "landing:pushed/0",
			Segments: []sources.Segment{
				{ID: 1, End: 2, Sealed: true, Name: "chunk-1"},
				{ID: 6, Start: -5, End: 4, Sealed: true, Name: "chunk-6-of-another-attempt"},
				{ID: 7, End: 3, Sealed: true, Name: "chunk-7", Locator: []byte("there")},
			},
			Passes: []cut.Pass{{Low: cut.Place{Segment: 1}, Ranges: pieces}},
		}
		all, _, err := members(&cut.Cut{Datasets: []cut.Dataset{{Name: "pushed", Unit: "records", Partitions: []cut.Partition{p}}}}, []*input{in})
		return all, err
	}
	for _, c := range []struct {
		name       string
		from, till cut.Place
		want       []key
	}{
		{"the whole run", cut.Place{Segment: 6, Offset: -5}, cut.Place{Segment: 6, Offset: 4}, []key{4, 5, 6, 8, 9, 10, 11, 12, 13}},
		{"only of the first ones", cut.Place{Segment: 6, Offset: -4}, cut.Place{Segment: 6, Offset: -1}, []key{5, 6, 8}},
		{"across the border of the last one", cut.Place{Segment: 6, Offset: -1}, cut.Place{Segment: 6, Offset: 2}, []key{9, 10, 11}},
		{"only of the last one", cut.Place{Segment: 6, Offset: 1}, cut.Place{Segment: 6, Offset: 3}, []key{11, 12}},
		{"on into chunks that are there", cut.Place{Segment: 6, Offset: -2}, cut.Place{Segment: 7, Offset: 1}, []key{8, 9, 10, 11, 12, 13, 14}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := named(cut.Range{Start: c.from, End: c.till})
			if err != nil {
				t.Fatal(err)
			}
			if ids := slices.Sorted(maps.Keys(got)); !slices.Equal(ids, c.want) {
				t.Errorf("records %d, want %d", ids, c.want)
			}
		})
	}

	// A range before the first record is an error.
	p := &cut.Partition{Identity: "landing:pushed/0"}
	if err := in.within(p, audit.Range{Name: "chunk-6", Start: -8, End: 4}, func(int) {}); err == nil || !strings.Contains(err.Error(), "only 7 records lie before") {
		t.Errorf("a range that begins before the first record: want an error, got %v", err)
	}
	in.queue = nil
	if err := in.within(p, audit.Range{Name: "chunk-6", Start: -1, End: 4}, func(int) {}); err == nil || !strings.Contains(err.Error(), "negative offset") {
		t.Errorf("of a file: %v", err)
	}
}
