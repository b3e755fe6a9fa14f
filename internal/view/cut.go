package view

import (
	"fmt"
	"io"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Cut is one cut of the ledger.
type Cut struct {
	Cut        string  `json:"cut"`
	State      string  `json:"state"` // frozen | bound | carried | memory | voided
	Newest     bool    `json:"newest"`
	Step       int64   `json:"step"`
	Epoch      uint32  `json:"epoch"`
	Generation uint32  `json:"generation"`
	Rank       *uint32 `json:"rank"` // private only
	Path       string  `json:"path"`
	AgeSeconds float64 `json:"age_seconds"` // since it was bound (memory: frozen), as far as is known
	Units      Units   `json:"units"`       // of all datasets

	Records *Records `json:"records"` // in units.acked; null: voided

	Rewindable bool  `json:"rewindable"`
	Gone       *Gone `json:"gone"` // null: nothing after it is deleted, as far as is known
}

type Units struct {
	Acked    int64 `json:"acked"`
	Excluded int64 `json:"excluded"`
	Dropped  int64 `json:"dropped"`
}

func CutOf(k *headracev1.CutState) Cut {
	v := Cut{Cut: cut.ID(k.Cut).String(), State: k.State, Newest: k.Newest, Step: k.Step, Epoch: k.Epoch, Generation: k.Generation,
		Path: k.Path, AgeSeconds: k.AgeSeconds,
		Units:      Units{k.GetUnits().GetAcked(), k.GetUnits().GetExcluded(), k.GetUnits().GetDropped()},
		Rewindable: rewindable(k), Gone: GoneOf(k.Gone)}
	if k.Records != nil {
		v.Records = RecordsOfTally(k.Records)
	}
	if k.Rank >= 0 {
		rank := uint32(k.Rank)
		v.Rank = &rank
	}
	return v
}

// WriteCuts prints the cuts that a master keeps, and what was deleted at the source
// that going back to one would need.
func WriteCuts(w io.Writer, views []Cut) {
	t := terminal.NewTable("STEP>", "EPOCH>", "RANK>", "STATE", "AGE>", "CUT", "PATH")
	for _, k := range views {
		state := Standing(k.State, k.Rewindable, k.Gone)
		if k.Newest {
			state += " (newest)"
		}
		age := "-"
		if k.AgeSeconds > 0 {
			age = terminal.Ago(k.AgeSeconds)
		}
		t.Row(fmt.Sprint(k.Step), fmt.Sprint(k.Epoch), RankText(k.Rank), state, age, k.Cut, k.Path)
	}
	t.Write(w)
	for _, k := range views {
		k.Gone.List(w, k.Step, k.Rank)
	}
}

func RankText(rank *uint32) string {
	if rank == nil {
		return "-"
	}
	return fmt.Sprint(*rank)
}
