package ckpt

import (
	"fmt"
	"io"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// Description is one checkpoint with its files and what is in its model.
type Description struct {
	View
	Needs    []string  `json:"needs"` // cuts of checkpoints without which it cannot be loaded
	File     []File    `json:"file"`
	Datasets []InModel `json:"datasets"`
}

type File struct {
	Path string  `json:"path"`
	Size int64   `json:"size"`
	CRC  string  `json:"crc64nvme"`
	Rank *uint32 `json:"rank"`
}

// InModel is a dataset in a model, passes added up. A dataset with a backfill that counts in
// another unit has two.
type InModel struct {
	Name       string        `json:"name"`
	Unit       string        `json:"unit"`
	Shuffled   bool          `json:"shuffled"`
	Partitions int           `json:"partitions"`
	InModel    int64         `json:"in_model"` // units
	Records    *view.Records `json:"records"`
	Settled    view.Units    `json:"settled"`
}

func Describe(c *manifest.Checkpoint, b *Ledger) Description {
	m := c.Manifest
	v := Description{View: ViewOf(c, b), Needs: []string{}, File: []File{}, Datasets: []InModel{}}
	for _, id := range m.Needs {
		v.Needs = append(v.Needs, id.String())
	}
	for _, f := range m.Files {
		v.File = append(v.File, File{f.Path, f.Size, f.CRC.String(), f.Rank})
	}
	for i := range m.Cut.Datasets {
		for _, d := range m.Cut.Datasets[i].ByUnit() {
			v.Datasets = append(v.Datasets, inModel(&d))
		}
	}
	return v
}

func inModel(d *cut.Dataset) InModel {
	in := InModel{Name: d.Name, Unit: d.Unit, Shuffled: d.Shuffle != nil, Partitions: len(d.Partitions), Settled: settledOf(d), Records: view.RecordsOf(d.Records())}
	for j := range d.Partitions {
		for pass := range audit.Passes(d, &d.Partitions[j]) {
			in.InModel += pass.Units
		}
	}
	return in
}

func settledOf(d *cut.Dataset) view.Units {
	u := d.Units()
	in := func(offsets int64) int64 { return sources.InUnits(d.Unit, offsets) }
	return view.Units{Acked: in(u.Acked), Excluded: in(u.Excluded), Dropped: in(u.Dropped)}
}

func (v *Description) Write(w io.Writer) {
	line := func(name, value string) { fmt.Fprintf(w, "%-11s %s\n", name, value) }
	line("checkpoint", v.Path)
	step := fmt.Sprintf("%d, epoch %d", v.Step, v.Epoch)
	if v.Rank != nil {
		step += fmt.Sprintf(", rank %d", *v.Rank)
	}
	line("step", step)
	line("job", fmt.Sprintf("%s, %s, world size %d", v.Job, v.Model, v.WorldSize))
	cut := v.Cut
	if !v.Exact {
		cut += " (not exact: the model may hold more than it says)"
	}
	line("cut", cut)
	line("made", made(*v.Created)+" by "+v.Writer)
	if v.Ledger != "" {
		line("ledger", v.ledger())
	}
	v.Gone.Write(w, "  gone      ")
	if v.Pinned {
		line("pinned", v.PinReason)
	}
	for _, id := range v.Needs {
		line("needs", id)
	}
	fmt.Fprintln(w)
	t := terminal.NewTable("DATASET", "IN THE MODEL>", "RECORDS>", "EXCLUDED>", "DROPPED>", "PARTITIONS>", "OLDEST", "NEWEST")
	for _, d := range v.Datasets {
		t.Row(d.Name, terminal.Amount(d.InModel, d.Unit), d.Records.Text(), terminal.Amount(d.Settled.Excluded, d.Unit), terminal.Amount(d.Settled.Dropped, d.Unit), fmt.Sprint(d.Partitions), d.Records.OldestText(), d.Records.NewestText())
	}
	t.Write(w)
	fmt.Fprintln(w)
	t = terminal.NewTable("FILE", "SIZE>", "CRC64-NVME", "RANK>")
	for _, f := range v.File {
		t.Row(f.Path, terminal.Amount(f.Size, "bytes"), f.CRC, view.RankText(f.Rank))
	}
	t.Write(w)
}
