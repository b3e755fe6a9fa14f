package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/suggest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) auditCommand() *cobra.Command {
	var diff, contains string
	ranges := false
	cmd := &cobra.Command{
		Use:   "audit CKPT",
		Short: "Which records are in a checkpoint's model",
		Long: `Says from a checkpoint's manifest alone, without a master, which records are in
its model: by dataset, partition and pass, in the source's own offsets, through a
shuffle too. Amounts are in the dataset's unit: bytes for files, offsets for
brokers (a compacted topic has fewer records than offsets). A range means the
records that begin in it. The records themselves are counted as trainers used them,
with the event times of the oldest and the newest ("at least" and "?": some, or all,
were used by a version that did not count).

  --contains TOPIC/PARTITION/OFFSET, or PATH/OFFSET: is the record that begins
  there in the model, by which pass, or why not? Exits as grep does: 0 for yes,
  1 for no, 2 when it can not be said. Of a file the offset is the record's first
  byte: no file is read, so that for a byte inside of a record the answer is about
  a record that is not there, and may be another than for the one around it.
  --diff B: what one model has and the other has not.

For a folder of checkpoints it takes the newest.`,
		Example: `  headrace audit ckpt/ --ranges
  headrace audit ckpt/ --contains clicks/3/81234
  headrace audit ckpt/ --contains logs/day_3.tsv/1048576
  headrace audit ckpt/step-0000000200-9f3c00000000abcd --diff ckpt/step-0000000100-5e1d000000000042`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			if diff != "" && contains != "" {
				return advice.Usage.Errorf("ask twice", "--diff and --contains exclude each other")
			}
			c, err := one(args[0])
			if contains != "" {
				if err == nil {
					err = a.contains(c, contains)
				}
				return asGrep(err)
			}
			if err != nil {
				return err
			}
			if diff != "" {
				return a.diff(c, diff)
			}
			v := auditOf(c)
			return a.show(v, func(w io.Writer) { v.write(w, ranges) })
		},
	}
	cmd.Flags().StringVar(&contains, "contains", "", "a record: TOPIC/PARTITION/OFFSET, or PATH/OFFSET")
	cmd.Flags().StringVar(&diff, "diff", "", "another checkpoint to compare with")
	cmd.Flags().BoolVar(&ranges, "ranges", false, "list the ranges (json and yaml always do)")
	return cmd
}

// asGrep keeps exit code 1 for "no".
func asGrep(err error) error {
	if err == nil {
		return nil
	}
	f := *classify(err)
	if f.err != nil {
		f.code = exitUsage
	}
	return &f
}

// aboutView says which checkpoint an answer is about.
type aboutView struct {
	Path  string  `json:"path"`
	Job   string  `json:"job"`
	Model string  `json:"model"`
	Step  int64   `json:"step"`
	Epoch uint32  `json:"epoch"`
	Rank  *uint32 `json:"rank"` // private only
	Cut   string  `json:"cut"`
	Exact bool    `json:"exact"` // false: the model may hold more
}

func aboutOf(c *manifest.Checkpoint) aboutView {
	m := c.Manifest
	return aboutView{c.Path, m.Job, m.Model, m.Step, m.Cut.Epoch, m.Rank, m.Cut.ID.String(), m.Cut.Exact}
}

func (v *aboutView) write(w io.Writer) {
	rank := ""
	if v.Rank != nil {
		rank = fmt.Sprintf("rank %d, ", *v.Rank)
	}
	fmt.Fprintf(w, "%s\n%sstep %d, epoch %d, job %s, %s, cut %s\n", v.Path, rank, v.Step, v.Epoch, v.Job, v.Model, v.Cut)
	if !v.Exact {
		fmt.Fprintln(w, "not exact: yields were not held while it was saved, so the model may hold more than this")
	}
}

type auditView struct {
	aboutView
	Datasets []auditDataset `json:"datasets"`
}

type passOf = audit.Pass

// auditPass is a pass with its records; null: those of passes that are done are only
// known together.
type auditPass struct {
	passOf
	Records *view.Records `json:"records"`
}

type auditDataset struct {
	Name       string           `json:"name"`
	Unit       string           `json:"unit"` // bytes | records: what offsets count
	Shuffled   bool             `json:"shuffled"`
	Units      int64            `json:"units"` // in the model, all passes
	Records    *view.Records    `json:"records"`
	Partitions []auditPartition `json:"partitions"`
}

type auditPartition struct {
	Identity string        `json:"identity"`
	Label    string        `json:"label"` // what people call it
	Units    int64         `json:"units"`
	Records  *view.Records `json:"records"`
	Passes   []auditPass   `json:"passes"`
}

func auditOf(c *manifest.Checkpoint) auditView {
	v := auditView{aboutView: aboutOf(c), Datasets: []auditDataset{}}
	for i := range c.Manifest.Cut.Datasets {
		d := &c.Manifest.Cut.Datasets[i]
		out := auditDataset{Name: d.Name, Unit: d.Unit, Shuffled: d.Shuffle != nil, Records: view.RecordsOf(d.Records()), Partitions: []auditPartition{}}
		for j := range d.Partitions {
			p := auditPartition{Identity: d.Partitions[j].Identity, Label: d.Partitions[j].Label(), Records: view.RecordsOf(d.Partitions[j].Records()), Passes: []auditPass{}}
			for pass := range audit.Passes(d, &d.Partitions[j]) {
				one := auditPass{passOf: pass}
				if pass.Records != nil {
					one.Records = view.RecordsOf(*pass.Records)
				}
				p.Passes = append(p.Passes, one)
				p.Units += pass.Units
			}
			out.Partitions = append(out.Partitions, p)
			out.Units += p.Units
		}
		v.Datasets = append(v.Datasets, out)
	}
	return v
}

func (v *auditView) write(w io.Writer, ranges bool) {
	v.aboutView.write(w)
	for _, d := range v.Datasets {
		shuffled := ""
		if d.Shuffled {
			shuffled = ", shuffled"
		}
		fmt.Fprintf(w, "\ndataset %s: %s %s in the model%s\n", d.Name, terminal.Grouped(d.Units), d.Unit, shuffled)
		fmt.Fprintf(w, "records: %s\n", d.Records.Sentence())
		t := terminal.NewTable("PARTITION", "PASS>", "IN THE MODEL>", "RECORDS>", "RANGES>", "ALL SETTLED", "EXCLUDED>", "OLDEST", "NEWEST")
		for _, p := range d.Partitions {
			for _, ps := range p.Passes {
				out := int64(0)
				for _, e := range ps.Excluded {
					out += e.Units
				}
				whole := "no"
				if ps.Whole {
					whole = "yes"
				}
				t.Row(p.Label, fmt.Sprint(ps.Pass+1), terminal.Grouped(ps.Units), ps.Records.Text(), fmt.Sprint(len(ps.Ranges)), whole, terminal.Grouped(out), ps.Records.OldestText(), ps.Records.NewestText())
			}
			if len(p.Passes) == 0 {
				t.Row(p.Label, "-", "0", "0", "0", "no", "0", "-", "-")
			}
			if len(p.Passes) > 1 {
				t.Row(p.Label, "all", terminal.Grouped(p.Units), p.Records.Text(), "", "", "", p.Records.OldestText(), p.Records.NewestText())
			}
		}
		t.Write(w)
		writeVague(w, &d)
		if ranges {
			auditRanges(w, &d)
		}
		auditExcluded(w, &d)
	}
}

func writeVague(w io.Writer, d *auditDataset) {
	for _, p := range d.Partitions {
		for _, ps := range p.Passes {
			if ps.Vague > 0 {
				fmt.Fprintf(w, "%s pass %d: %s %s of this were dropped by choice; the cut does not say which\n", p.Label, ps.Pass+1, terminal.Grouped(ps.Vague), d.Unit)
			}
		}
	}
}

func auditRanges(w io.Writer, d *auditDataset) {
	t := terminal.NewTable("SEGMENT", "PASS>", "START>", "END>")
	for _, p := range d.Partitions {
		for _, ps := range p.Passes {
			for _, r := range ps.Ranges {
				t.Row(r.Name, fmt.Sprint(ps.Pass+1), fmt.Sprint(r.Start), fmt.Sprint(r.End))
			}
		}
	}
	fmt.Fprintln(w)
	t.Write(w)
}

func auditExcluded(w io.Writer, d *auditDataset) {
	t := terminal.NewTable("EXCLUDED", "PASS>", "START>", "END>", "WHY")
	for _, p := range d.Partitions {
		for _, ps := range p.Passes {
			for _, e := range ps.Excluded {
				for _, r := range e.Ranges {
					t.Row(r.Name, fmt.Sprint(ps.Pass+1), fmt.Sprint(r.Start), fmt.Sprint(r.End), terminal.Clip(e.Kind+": "+e.Reason, 80))
				}
			}
		}
	}
	if !t.Empty() {
		fmt.Fprintln(w)
		t.Write(w)
	}
}

type containsView struct {
	aboutView
	Record string        `json:"record"`
	In     bool          `json:"in"` // by any pass
	Found  []audit.Where `json:"found"`
}

func (a *app) contains(c *manifest.Checkpoint, text string) error {
	r, err := audit.ParseRecord(text)
	if err != nil {
		return advice.Usage.Wrap("as in --contains clicks/3/81234, or --contains logs/day_3.tsv/1048576", err)
	}
	found, names := audit.Contains(&c.Manifest.Cut, r)
	v := containsView{aboutView: aboutOf(c), Record: text, Found: found}
	if len(found) == 0 {
		known := false
		for _, n := range names {
			known = known || n == r.Segment || strings.HasSuffix(n, "/"+r.Segment)
		}
		if !known {
			return advice.NotFound.Errorf(suggest.Hint(r.Segment, names, "files or partitions"), "the checkpoint knows nothing called %s (of a file that comes behind those it knows, nothing is in the model)", r.Segment)
		}
		v.Found = []audit.Where{} // known, but not that offset: it was not listed then
	}
	for i := range found {
		v.In = v.In || found[i].In()
	}
	err = a.show(v, func(w io.Writer) {
		if len(found) == 0 {
			fmt.Fprintf(w, "no: %s had no offset %d when the checkpoint was saved\n", r.Segment, r.Offset)
		}
		for i := range found {
			writeWhere(w, &found[i])
		}
	})
	if err == nil && !v.In {
		return &failure{code: exitFailed}
	}
	return err
}

func writeWhere(w io.Writer, f *audit.Where) {
	word := "no"
	if f.In() {
		word = "yes"
	}
	place := fmt.Sprintf("the record at %s offset %d", f.Name, f.Offset)
	if f.Unit == "bytes" { // only the file says whether one begins there
		place = fmt.Sprintf("a record whose first byte is %s offset %d", f.Name, f.Offset)
	}
	fmt.Fprintf(w, "%s: %s (dataset %s, partition %s)\n", word, place, f.Dataset, f.Label)
	for _, p := range f.Passes {
		line := map[string]string{"in": "in the model", "out": "not in the model", "excluded": "excluded", "dropped": "dropped by choice"}[p.State]
		if p.Vague {
			line += ", if it is not one of those that were dropped by choice"
		}
		if p.Reason != "" {
			line += ": " + p.Reason
		}
		fmt.Fprintf(w, "    pass %d: %s\n", p.Pass+1, line)
	}
	if len(f.Passes) == 0 {
		fmt.Fprintln(w, "    nothing of its partition is in the model")
	}
}

type diffView struct {
	A           aboutView          `json:"a"`
	B           aboutView          `json:"b"`
	Same        bool               `json:"same"`
	Differences []audit.Difference `json:"differences"`
}

func (a *app) diff(c *manifest.Checkpoint, with string) error {
	other, err := one(with)
	if err != nil {
		return err
	}
	diffs, err := audit.Diff(&c.Manifest.Cut, &other.Manifest.Cut)
	if err != nil {
		return fmt.Errorf("%s and %s can not be compared: %w", c.Path, other.Path, err)
	}
	if diffs == nil {
		diffs = []audit.Difference{}
	}
	v := diffView{A: aboutOf(c), B: aboutOf(other), Same: len(diffs) == 0, Differences: diffs}
	return a.show(v, func(w io.Writer) {
		fmt.Fprint(w, "A: ")
		v.A.write(w)
		fmt.Fprint(w, "B: ")
		v.B.write(w)
		fmt.Fprintln(w)
		if v.Same {
			fmt.Fprintln(w, "the same records are in both models")
			return
		}
		t := terminal.NewTable("DATASET", "PARTITION", "PASS>", "ONLY IN A>", "RECORDS>", "RANGES>", "ONLY IN B>", "RECORDS>", "RANGES>", "UNIT")
		for _, d := range diffs {
			t.Row(d.Dataset, d.Label, fmt.Sprint(d.Pass+1), terminal.Grouped(d.UnitsA), rows(d.RowsA), fmt.Sprint(len(d.OnlyA)), terminal.Grouped(d.UnitsB), rows(d.RowsB), fmt.Sprint(len(d.OnlyB)), d.Unit)
		}
		t.Write(w)
	})
}

// rows of a difference; ? where neither model holds all that the other does.
func rows(n *int64) string {
	if n == nil {
		return "?"
	}
	return terminal.Grouped(*n)
}
