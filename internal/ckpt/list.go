package ckpt

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

// View is one checkpoint of a folder.
type View struct {
	Path string `json:"path"` // of its manifest
	// State is whole | half | damaged | newer | invalid | unreadable | memory | replica. Whole: the
	// manifest is whole, and its files were not read. Memory: it lies in a node's memory. Replica: a
	// copy of such a checkpoint lies in another node's memory.
	State     string     `json:"state"`
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
	Node      string     `json:"node,omitempty"`   // whose memory it lies in
	Holder    *uint32    `json:"holder,omitempty"` // the rank that has it there
	Pinned    bool       `json:"pinned"`
	PinReason string     `json:"pin_reason"`
	Ledger    string     `json:"ledger"` // bound | frozen | carried | memory | voided | unknown | another job's; "": no master was asked

	Rewindable *bool      `json:"rewindable"` // null: the ledger does not know it
	Gone       *view.Gone `json:"gone"`       // null: no record that would be read again, as far as is known
}

func ViewOf(c *manifest.Checkpoint, b *Ledger) View {
	v := View{Path: c.Path, State: "whole"}
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

// List are the views of all.
func List(all []manifest.Checkpoint, b *Ledger) []View {
	views := []View{}
	for i := range all {
		views = append(views, ViewOf(&all[i], b))
	}
	return views
}

// WriteList prints the checkpoints of the folder path. Below them it prints why a checkpoint
// does not count, and the deleted ranges that going back to one would need.
func WriteList(w io.Writer, views []View, path string, ledger bool) {
	if len(views) == 0 {
		fmt.Fprintf(w, "no checkpoints in %s\n", path)
		return
	}
	table(views, ledger).Write(w)
	for _, v := range views {
		if v.Reason != "" {
			fmt.Fprintf(w, "%s: %s\n", v.Path, v.Reason)
		}
		v.Gone.List(w, v.Step, v.Rank)
	}
}

// ledger is what the ledger says of it, in words.
func (v *View) ledger() string {
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

func table(views []View, ledger bool) *terminal.Table {
	header := []string{"STEP>", "EPOCH>", "RANK>", "STATE", "FILES>", "SIZE>", "MADE", "PATH"}
	if ledger {
		header = append(header[:4:4], append([]string{"LEDGER"}, header[4:]...)...)
	}
	t := terminal.NewTable(header...)
	for _, v := range views {
		state := v.State
		if v.Holder != nil {
			state = fmt.Sprintf("memory of %s, rank %d", v.Node, *v.Holder)
			if v.State == stateReplica {
				state = fmt.Sprintf("replica at %s, rank %d", v.Node, *v.Holder)
			}
		}
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

func made(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
