package ckpt

import (
	"fmt"
	"io"
	"slices"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

// About says which checkpoint an answer is about.
type About struct {
	Path  string  `json:"path"`
	Job   string  `json:"job"`
	Model string  `json:"model"`
	Step  int64   `json:"step"`
	Epoch uint32  `json:"epoch"`
	Rank  *uint32 `json:"rank"` // private only
	Cut   string  `json:"cut"`
	Exact bool    `json:"exact"` // false: the model may hold more
}

func aboutOf(c *manifest.Checkpoint) About {
	m := c.Manifest
	return About{c.Path, m.Job, m.Model, m.Step, m.Cut.Epoch, m.Rank, m.Cut.ID.String(), m.Cut.Exact}
}

func (v *About) write(w io.Writer) {
	rank := ""
	if v.Rank != nil {
		rank = fmt.Sprintf("rank %d, ", *v.Rank)
	}
	fmt.Fprintf(w, "%s\n%sstep %d, epoch %d, job %s, %s, cut %s\n", v.Path, rank, v.Step, v.Epoch, v.Job, v.Model, v.Cut)
	if !v.Exact {
		fmt.Fprintln(w, "not exact: yields were not paused while it was saved, so the model may hold more than this")
	}
}

// Audit is what one model holds, from its checkpoint's cut alone.
type Audit struct {
	About
	Datasets []auditDataset `json:"datasets"`
}

type passOf = audit.Pass

// auditPass is a pass with its records. They are null for passes that are done, because
// those are counted together.
type auditPass struct {
	passOf
	Records *view.Records `json:"records"`
}

type auditDataset struct {
	Name       string           `json:"name"`
	Unit       string           `json:"unit"` // bytes | records | entries: what offsets count
	Shuffled   bool             `json:"shuffled"`
	Units      int64            `json:"units"`                 // in the model, all passes; of partitions of this unit
	Other      []auditUnits     `json:"other_units,omitempty"` // of a backfill that counts in another unit
	Records    *view.Records    `json:"records"`
	Partitions []auditPartition `json:"partitions"`
}

type auditUnits struct {
	Unit  string `json:"unit"`
	Units int64  `json:"units"`
}

type auditPartition struct {
	Identity string        `json:"identity"`
	Label    string        `json:"label"` // what people call it
	Unit     string        `json:"unit"`
	Units    int64         `json:"units"`
	Records  *view.Records `json:"records"`
	Passes   []auditPass   `json:"passes"`
}

func AuditOf(c *manifest.Checkpoint) Audit {
	v := Audit{About: aboutOf(c), Datasets: []auditDataset{}}
	for i := range c.Manifest.Cut.Datasets {
		d := &c.Manifest.Cut.Datasets[i]
		out := auditDataset{Name: d.Name, Unit: d.Unit, Shuffled: d.Shuffle != nil, Records: view.RecordsOf(d.Records()), Partitions: []auditPartition{}}
		for j := range d.Partitions {
			p := auditPartition{Identity: d.Partitions[j].Identity, Label: d.Partitions[j].Label(), Unit: d.UnitOf(&d.Partitions[j]), Records: view.RecordsOf(d.Partitions[j].Records()), Passes: []auditPass{}}
			for pass := range audit.Passes(d, &d.Partitions[j]) {
				one := auditPass{passOf: pass}
				if pass.Records != nil {
					one.Records = view.RecordsOf(*pass.Records)
				}
				p.Passes = append(p.Passes, one)
				p.Units += pass.Units
			}
			out.Partitions = append(out.Partitions, p)
			out.count(&p)
		}
		v.Datasets = append(v.Datasets, out)
	}
	return v
}

func (d *auditDataset) count(p *auditPartition) {
	if p.Unit == d.Unit {
		d.Units += p.Units
		return
	}
	i := slices.IndexFunc(d.Other, func(o auditUnits) bool { return o.Unit == p.Unit })
	if i < 0 {
		i, d.Other = len(d.Other), append(d.Other, auditUnits{Unit: p.Unit})
	}
	d.Other[i].Units += p.Units
}

func (v *Audit) Write(w io.Writer, ranges bool) {
	v.About.write(w)
	for _, d := range v.Datasets {
		shuffled := ""
		if d.Shuffled {
			shuffled = ", shuffled"
		}
		also := ""
		for _, o := range d.Other {
			also += fmt.Sprintf(" and %s %s", terminal.Grouped(o.Units), amount(o.Unit))
		}
		fmt.Fprintf(w, "\ndataset %s: %s %s%s in the model%s\n", d.Name, terminal.Grouped(d.Units), amount(d.Unit), also, shuffled)
		fmt.Fprintf(w, "records: %s%s\n", d.Records.Sentence(), d.without())
		t := terminal.NewTable("PARTITION", "PASS>", "IN THE MODEL>", "RECORDS>", "RANGES>", "ALL SETTLED", "EXCLUDED>", "DROPPED>", "OLDEST", "NEWEST")
		for _, p := range d.Partitions {
			for _, ps := range p.Passes {
				out := int64(0)
				for _, e := range ps.Excluded {
					out += e.Units
				}
				dropped := ps.Vague
				for _, x := range ps.Dropped {
					dropped += x.Units
				}
				whole := "no"
				if ps.Whole {
					whole = "yes"
				}
				t.Row(p.Label, fmt.Sprint(ps.Pass+1), terminal.Grouped(ps.Units), ps.Records.Text(), fmt.Sprint(len(ps.Ranges)), whole, terminal.Grouped(out), terminal.Grouped(dropped), ps.Records.OldestText(), ps.Records.NewestText())
			}
			if len(p.Passes) == 0 {
				t.Row(p.Label, "-", "0", "0", "0", "no", "0", "0", "-", "-")
			}
			if len(p.Passes) > 1 {
				t.Row(p.Label, "all", terminal.Grouped(p.Units), p.Records.Text(), "", "", "", "", p.Records.OldestText(), p.Records.NewestText())
			}
		}
		t.Write(w)
		writeVague(w, &d)
		if ranges {
			auditRanges(w, &d)
		}
		auditExcluded(w, &d)
		auditDropped(w, &d)
	}
}

// amount is the word for units. A broker's unit is a position, which may hold no record.
func amount(unit string) string {
	if unit == "records" {
		return "positions"
	}
	return unit
}

// without says how many positions held no record, if all records were counted.
func (d *auditDataset) without() string {
	if d.Unit != "records" || len(d.Other) > 0 || d.Records == nil || d.Records.Untold > 0 || d.Records.Rows >= d.Units {
		return ""
	}
	return fmt.Sprintf("; %s positions held none", terminal.Grouped(d.Units-d.Records.Rows))
}

func writeVague(w io.Writer, d *auditDataset) {
	for _, p := range d.Partitions {
		for _, ps := range p.Passes {
			if ps.Vague > 0 {
				fmt.Fprintf(w, "%s pass %d: %s %s of this were dropped by choice; the checkpoint does not say which\n", p.Label, ps.Pass+1, terminal.Grouped(ps.Vague), amount(p.Unit))
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

func auditDropped(w io.Writer, d *auditDataset) {
	t := terminal.NewTable("DROPPED: NOT IN THE MODEL", "PASS>", "START>", "END>", "AT STEP>")
	for _, p := range d.Partitions {
		for _, ps := range p.Passes {
			for _, x := range ps.Dropped {
				for _, r := range x.Ranges {
					t.Row(r.Name, fmt.Sprint(ps.Pass+1), fmt.Sprint(r.Start), fmt.Sprint(r.End), fmt.Sprint(x.Step))
				}
			}
		}
	}
	if !t.Empty() {
		fmt.Fprintln(w)
		t.Write(w)
	}
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
