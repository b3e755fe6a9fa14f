// Package ckpttest writes checkpoints for tests.
package ckpttest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// Save writes a checkpoint of clicks below dir/ckpt and returns its folder. In its model are
// [0, low) of the first file and [500, 990) of the second; [990, 1000) is excluded.
func Save(t testing.TB, dir string, step int64, epoch uint32, low int64, change func(*manifest.Manifest)) string {
	t.Helper()
	id := cut.ID(step)<<16 | cut.ID(epoch)
	m := &manifest.Manifest{Job: "default", Model: "replicated", Step: step, WorldSize: 2, Created: time.Date(2026, 11, 21, 10, 0, int(step%60), 0, time.UTC), Writer: "a test",
		Cut: cut.Cut{Version: cut.Version, ID: id, Job: "default", Model: "replicated", Epoch: epoch, Generation: 1, WorldSize: 2, Step: step, Exact: true,
			Datasets: []cut.Dataset{{Name: "clicks", Unit: "bytes", Partitions: []cut.Partition{{
				Identity: "files:clicks", Number: 1, Complete: true,
				Segments: []sources.Segment{{ID: 0, End: 1000, Sealed: true, Name: "logs/day_1.tsv", Locator: []byte("1")}, {ID: 1, End: 2000, Sealed: true, Name: "logs/day_2.tsv", Locator: []byte("2")}},
				Passes: []cut.Pass{{Low: cut.Place{Segment: 0, Offset: low}, Units: cut.Units{Acked: low + 490, Excluded: 10},
					Records: &cut.Tally{Rows: low/10 + 49, Oldest: 1764000000001, Newest: 1764000000001 + 1000*low},
					Ranges: cut.Ranges{{Start: cut.Place{Segment: 1, Offset: 500}, End: cut.Place{Segment: 1, Offset: 990}, Kind: cut.Acked},
						{Start: cut.Place{Segment: 1, Offset: 990}, End: cut.Place{Segment: 1, Offset: 1000}, Kind: cut.Excluded}}}},
				Excluded: []cut.Exclusion{{Piece: cut.Piece{Segment: 1, Start: 990, End: 1000}, Units: 10, Kind: "lost", Reason: "the file was cut off", When: 1764000000000}},
			}}}}}}
	change(m)
	m.Cut.Rank = cut.Group
	if m.Rank != nil {
		m.Cut.Rank, m.Model, m.Cut.Model = cut.Rank(*m.Rank), "private", "private"
	}
	m.Cut.Job = m.Job
	folder, err := manifest.Begin(manifest.OS{}, filepath.Join(dir, "ckpt"), manifest.Folder(step, m.Rank, id))
	if err != nil {
		t.Fatal(err)
	}
	f, err := manifest.WriteFile(manifest.OS{}, folder, "model.safetensors", strings.NewReader(fmt.Sprintf("model of step %d", step)))
	if err != nil {
		t.Fatal(err)
	}
	m.Files = append(m.Files, f)
	if err := manifest.WriteManifest(manifest.OS{}, filepath.Join(folder, manifest.FileName), m); err != nil {
		t.Fatal(err)
	}
	return folder
}

// Unchanged leaves the manifest as Save makes it.
func Unchanged(*manifest.Manifest) {}
