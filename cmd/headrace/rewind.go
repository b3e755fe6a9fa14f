package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) rewindCommand() *cobra.Command {
	r := &rewinding{on: manifest.OS{}}
	cmd := &cobra.Command{
		Use:   "rewind NAME --to CKPT",
		Short: "Take a job back to a checkpoint",
		Long: `Takes the job NAME back to a checkpoint: everything that is not in its model is
pending again, and what was excluded stays so. Later checkpoints do not count any
more. Trainers of that model are fenced and have to start again; brokers are told
the new progress before the verb ends.

What the source has deleted can not be read again. With on_loss: stop going back to
where that is needed is refused, with the ranges and what to do; with on_loss:
continue they become excluded. --dry-run says both.

--to is a manifest, a checkpoint's folder, the 16 digits of a cut that the master
keeps, or ` + "`start`" + `. The files of a checkpoint are verified first; those that a
framework carries nobody can look at.`,
		Example: `  headrace rewind ctr --to ckpt/step-0000000100-9f3c00000000abcd --dry-run
  headrace rewind ctr --to start`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.to == "" {
				return advice.Usage.Errorf("as in `headrace rewind "+args[0]+" --to ckpt/step-...`", "--to names no checkpoint")
			}
			if err := a.load(cmd, map[string]string{"job": args[0]}); err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.close()
			return advice.FromMaster(a.rewind(cmd.Context(), c, args[0], r), c.target)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.to, "to", "", "the checkpoint")
	f.BoolVar(&r.dryRun, "dry-run", false, "say what would be read again, and change nothing")
	f.BoolVar(&r.unverified, "no-verify", false, "do not read the checkpoint's files first")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

type rewinding struct {
	to                      string
	dryRun, unverified, yes bool
	on                      manifest.FS
}

type rewoundView struct {
	Job     string        `json:"job"`
	To      string        `json:"to"` // path, cut, or start
	Step    int64         `json:"step"`
	DryRun  bool          `json:"dry_run"`
	Rewound bool          `json:"rewound"`
	Epoch   uint32        `json:"epoch"`
	Again   []againView   `json:"again"`   // what comes again
	Records *view.Records `json:"records"` // in all of again; null: nothing comes again
	Voided  []view.Cut    `json:"voided"`  // checkpoints that do not count any more
	Fenced  []uint32      `json:"fenced"`  // ranks that have to start again
	Untold  string        `json:"untold"`  // why a broker was not told; it is tried again
	Gone    *view.Gone    `json:"gone"`    // what of it can not be read again; null: nothing, as far as is known
	Refused string        `json:"refused"` // dry run: why it would be refused
	Hint    string        `json:"hint"`    // what to do then
}

type againView struct {
	Dataset   string `json:"dataset"`
	Partition string `json:"partition"`
	Pass      uint32 `json:"pass"`
	Units     int64  `json:"units"`
	Unit      string `json:"unit"`
}

func (a *app) rewind(ctx context.Context, c *client, job string, r *rewinding) error {
	req, step, err := a.rewindTo(ctx, c, job, r)
	if err != nil {
		return err
	}
	req.DryRun = true
	ask := func() (rewoundView, error) {
		ctx, cancel := context.WithTimeout(ctx, 4*callTimeout) // it waits for brokers
		defer cancel()
		reply, err := c.cuts().Rewind(ctx, req)
		if err != nil {
			return rewoundView{}, err
		}
		return rewoundOf(reply, job, r.to, step), nil
	}
	v, err := ask()
	if err != nil {
		return err
	}
	v.DryRun = r.dryRun
	if v.Refused != "" && !r.dryRun {
		return advice.Failed.Wrap(v.Hint, errors.New(v.Refused))
	}
	if !r.dryRun {
		if a.cfg.Output == "table" && !r.yes {
			v.write(a.err)
		}
		if err := a.confirm(ctx, fmt.Sprintf("rewind job %s to %s", job, r.to), r.yes); err != nil {
			return err
		}
		if req.Path != "" && !r.unverified { // brokers are told of it
			if err := manifest.Stays(r.on, req.Path); err != nil {
				return err
			}
		}
		req.DryRun = false
		if v, err = ask(); err != nil {
			return err
		}
		v.Rewound = true
	}
	return a.show(v, func(w io.Writer) { v.write(w) })
}

// rewindTo makes the call of what --to names.
func (a *app) rewindTo(ctx context.Context, c *client, job string, r *rewinding) (req *headracev1.RewindRequest, step int64, err error) {
	if r.to == "start" {
		return &headracev1.RewindRequest{Job: job}, 0, nil
	}
	path := r.to
	if id, err := manifest.ParseCutID(r.to); err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		kept, err := c.cuts().Show(ctx, &headracev1.ShowCutRequest{Cut: uint64(id)})
		if err != nil {
			return nil, 0, err
		}
		if len(kept.Body) == 0 {
			return nil, 0, fmt.Errorf("cut %v is %s: there is no going back to it", id, kept.Cut.State)
		}
		if kept.Cut.State == "carried" || kept.Cut.State == "bound" && r.unverified {
			return &headracev1.RewindRequest{Job: job, Body: kept.Body, Path: kept.Cut.Path}, kept.Cut.Step, nil
		}
		path = kept.Cut.Path // that it is frozen says nothing of its checkpoint
	}
	ckpt, err := exactly(path)
	switch {
	case err != nil:
		return nil, 0, err
	case ckpt.Err != nil:
		return nil, 0, fmt.Errorf("%s: %w", ckpt.Path, ckpt.Err)
	case ckpt.Manifest.Job != job:
		return nil, 0, advice.Usage.Errorf("a checkpoint takes back only its own job", "%s is of job %s, not %s", ckpt.Path, ckpt.Manifest.Job, job)
	}
	if !r.unverified {
		if err := a.verifies(ctx, ckpt); err != nil {
			return nil, 0, advice.Failed.Errorf("`headrace ckpt verify` shows all; --no-verify goes back to it all the same", "%s does not verify: %w", ckpt.Path, err)
		}
	}
	body, err := ckpt.Manifest.Cut.Encode()
	if err != nil {
		return nil, 0, err
	}
	return &headracev1.RewindRequest{Job: job, Body: body, Path: ckpt.Path, After: manifest.HighestOrder(r.on, ckpt)}, ckpt.Manifest.Step, nil
}

func rewoundOf(reply *headracev1.RewindReply, job, to string, step int64) rewoundView {
	v := rewoundView{Job: job, To: to, Step: step, Epoch: reply.Epoch, Again: []againView{}, Voided: []view.Cut{}, Fenced: reply.Fenced, Untold: reply.Untold,
		Gone: view.GoneOf(reply.Gone), Refused: reply.Refused, Hint: reply.Hint}
	for _, g := range reply.Again {
		v.Again = append(v.Again, againView{g.Dataset, g.Partition, g.Pass, g.Units, g.Unit})
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

func (v *rewoundView) write(w io.Writer) {
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
