package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

// ckptView is one checkpoint of a folder.
type ckptView struct {
	Path      string     `json:"path"`  // of its manifest
	State     string     `json:"state"` // whole | half | damaged | newer | invalid | unreadable; whole: the manifest is, its files were not read
	Reason    string     `json:"reason"`
	Job       string     `json:"job"`
	Model     string     `json:"model"`
	Step      int64      `json:"step"`
	Epoch     uint32     `json:"epoch"`
	Rank      *uint32    `json:"rank"` // private only
	Cut       string     `json:"cut"`
	Exact     bool       `json:"exact"`
	WorldSize uint32     `json:"world_size"`
	Created   *time.Time `json:"created"`
	Writer    string     `json:"writer"`
	Files     int        `json:"files"`
	Bytes     int64      `json:"bytes"`
	Pinned    bool       `json:"pinned"`
	PinReason string     `json:"pin_reason"`
	Ledger    string     `json:"ledger"` // bound | frozen | carried | voided | unknown | another job's; "": no master was asked

	Rewindable *bool      `json:"rewindable"` // null: the ledger does not know it
	Gone       *view.Gone `json:"gone"`       // null: nothing of what comes behind it, as far as is known
}

func ckptOf(c *manifest.Checkpoint, b *book) ckptView {
	v := ckptView{Path: c.Path, State: "whole"}
	if c.Pin != nil {
		v.Pinned, v.PinReason = true, c.Pin.Reason
	}
	if c.Err != nil {
		v.State, v.Reason = stateOf(c.Err), c.Err.Error()
		return v
	}
	m := c.Manifest
	v.Job, v.Model, v.Step, v.Epoch, v.Rank = m.Job, m.Model, m.Step, m.Cut.Epoch, m.Rank
	v.Cut, v.Exact, v.WorldSize, v.Created, v.Writer = m.Cut.ID.String(), m.Cut.Exact, m.WorldSize, &m.Created, m.Writer
	v.Files, v.Ledger = len(m.Files), b.of(m)
	if k, ok := b.cut(m); ok {
		v.Rewindable, v.Gone = &k.Rewindable, k.Gone
	}
	for i := range m.Files {
		v.Bytes += m.Files[i].Size
	}
	return v
}

// ledger is what the ledger says of it, in words.
func (v *ckptView) ledger() string {
	if v.Rewindable == nil {
		return v.Ledger
	}
	return view.Standing(v.Ledger, *v.Rewindable, v.Gone)
}

func stateOf(err error) string {
	switch {
	case errors.Is(err, manifest.ErrHalf):
		return "half"
	case errors.Is(err, manifest.ErrDamaged):
		return "damaged"
	case errors.Is(err, manifest.ErrNewer):
		return "newer"
	case errors.Is(err, manifest.ErrInvalid):
		return "invalid"
	}
	return "unreadable"
}

func ckptTable(views []ckptView, ledger bool) *terminal.Table {
	header := []string{"STEP>", "EPOCH>", "RANK>", "STATE", "FILES>", "SIZE>", "MADE", "PATH"}
	if ledger {
		header = append(header[:4:4], append([]string{"LEDGER"}, header[4:]...)...)
	}
	t := terminal.NewTable(header...)
	for _, v := range views {
		state := v.State
		if v.Pinned {
			state += ", pinned"
		}
		row := []string{"-", "-", "-", state, "-", "-", "-", v.Path}
		if v.Created != nil {
			row = []string{fmt.Sprint(v.Step), fmt.Sprint(v.Epoch), view.RankText(v.Rank), state, fmt.Sprint(v.Files), terminal.Amount(v.Bytes, "bytes"), made(*v.Created), v.Path}
		}
		if ledger {
			row = append(row[:4:4], append([]string{v.ledger()}, row[4:]...)...)
		}
		t.Row(row...)
	}
	return t
}

type showView struct {
	ckptView
	Needs    []string      `json:"needs"` // cuts of checkpoints without which it can not be loaded
	File     []fileView    `json:"file"`
	Datasets []inModelView `json:"datasets"`
}

type fileView struct {
	Path string  `json:"path"`
	Size int64   `json:"size"`
	CRC  string  `json:"crc64nvme"`
	Rank *uint32 `json:"rank"`
}

// inModelView is a dataset in a model, passes added up.
type inModelView struct {
	Name       string        `json:"name"`
	Unit       string        `json:"unit"`
	Shuffled   bool          `json:"shuffled"`
	Partitions int           `json:"partitions"`
	InModel    int64         `json:"in_model"` // units
	Records    *view.Records `json:"records"`
	Settled    view.Units    `json:"settled"`
}

func showOf(c *manifest.Checkpoint, b *book) showView {
	m := c.Manifest
	v := showView{ckptView: ckptOf(c, b), Needs: []string{}, File: []fileView{}, Datasets: []inModelView{}}
	for _, id := range m.Needs {
		v.Needs = append(v.Needs, id.String())
	}
	for _, f := range m.Files {
		v.File = append(v.File, fileView{f.Path, f.Size, f.CRC.String(), f.Rank})
	}
	for i := range m.Cut.Datasets {
		d := &m.Cut.Datasets[i]
		in := inModelView{Name: d.Name, Unit: d.Unit, Shuffled: d.Shuffle != nil, Partitions: len(d.Partitions), Settled: view.Units(d.Units()), Records: view.RecordsOf(d.Records())}
		for j := range d.Partitions {
			for pass := range audit.Passes(d, &d.Partitions[j]) {
				in.InModel += pass.Units
			}
		}
		v.Datasets = append(v.Datasets, in)
	}
	return v
}

func (v *showView) write(w io.Writer) {
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
