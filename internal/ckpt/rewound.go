package ckpt

import (
	"fmt"
	"io"
	"strings"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

// Rewound is what going back to a checkpoint did, or would do.
type Rewound struct {
	Job     string        `json:"job"`
	To      string        `json:"to"` // path, cut, or start
	Step    int64         `json:"step"`
	DryRun  bool          `json:"dry_run"`
	Rewound bool          `json:"rewound"`
	Epoch   uint32        `json:"epoch"`
	Again   []Again       `json:"again"`   // what comes again
	Records *view.Records `json:"records"` // in all of again; null: nothing comes again
	Voided  []view.Cut    `json:"voided"`  // checkpoints that do not count any more
	Fenced  []uint32      `json:"fenced"`  // ranks that have to start again
	Untold  string        `json:"untold"`  // why a broker was not told; it is tried again
	Gone    *view.Gone    `json:"gone"`    // what of it cannot be read again; null: nothing, as far as is known
	Refused string        `json:"refused"` // dry run: why it would be refused
	Hint    string        `json:"hint"`    // what to do then
}

// Again is what of one partition and pass is read again.
type Again struct {
	Dataset   string `json:"dataset"`
	Partition string `json:"partition"`
	Pass      uint32 `json:"pass"`
	Units     int64  `json:"units"`
	Unit      string `json:"unit"`
}

// rewoundOf is the view of a master's reply.
func rewoundOf(reply *headracev1.RewindReply, job, to string, step int64) *Rewound {
	v := &Rewound{Job: job, To: to, Step: step, Epoch: reply.Epoch, Again: []Again{}, Voided: []view.Cut{}, Fenced: reply.Fenced, Untold: reply.Untold,
		Gone: view.GoneOf(reply.Gone), Refused: reply.Refused, Hint: reply.Hint}
	for _, g := range reply.Again {
		v.Again = append(v.Again, Again{g.Dataset, g.Partition, g.Pass, g.Units, g.Unit})
	}
	if reply.Records != nil {
		v.Records = view.RecordsOfTally(reply.Records)
	}
	for _, k := range reply.Voided {
		v.Voided = append(v.Voided, view.CutOf(k))
	}
	if v.Fenced == nil {
		v.Fenced = []uint32{}
	}
	return v
}

func (v *Rewound) Write(w io.Writer) {
	switch {
	case v.Refused != "":
		fmt.Fprintf(w, "job %s would not be rewound to %s (step %d)\n", v.Job, v.To, v.Step)
	case v.Rewound:
		fmt.Fprintf(w, "job %s is rewound to %s (step %d): epoch %d\n", v.Job, v.To, v.Step, v.Epoch)
	default:
		fmt.Fprintf(w, "job %s would be rewound to %s (step %d)\n", v.Job, v.To, v.Step)
	}
	t := terminal.NewTable("READ AGAIN", "PARTITION", "PASS>", "UNITS>")
	for _, g := range v.Again {
		t.Row(g.Dataset, g.Partition, fmt.Sprint(g.Pass+1), terminal.Amount(g.Units, g.Unit))
	}
	if !t.Empty() {
		t.Write(w)
		fmt.Fprintf(w, "records read again: %s\n", v.Records.Sentence())
	} else {
		fmt.Fprintln(w, "nothing is read again")
	}
	v.Gone.Write(w, "deleted at the source: ")
	for _, k := range v.Voided {
		fmt.Fprintf(w, "does not count any more: step %d, cut %s %s\n", k.Step, k.Cut, k.Path)
	}
	if len(v.Fenced) > 0 {
		var ranks []string
		for _, rank := range v.Fenced {
			ranks = append(ranks, fmt.Sprint(rank))
		}
		fmt.Fprintf(w, "ranks that have to start again: %s\n", strings.Join(ranks, ", "))
	}
	if v.Untold != "" {
		fmt.Fprintf(w, "a broker was not told yet, it is tried again: %s\n", v.Untold)
	}
	if v.Refused != "" {
		fmt.Fprintf(w, "it would be refused: %s\n    hint: %s\n", v.Refused, v.Hint)
	}
}
