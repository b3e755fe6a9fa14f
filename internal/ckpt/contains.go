package ckpt

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/suggest"
)

// Containing says whether a record is in a model.
type Containing struct {
	About
	Record string        `json:"record"`
	In     bool          `json:"in"`     // by any pass
	Unsure bool          `json:"unsure"` // its position is settled, and it is not known whether a record was there
	Found  []audit.Where `json:"found"`
	Why    []string      `json:"why,omitempty"` // the source did not say
}

func (v *Containing) notAsked(err error) {
	if err != nil {
		v.Why = append(v.Why, err.Error())
	}
}

// Contains looks for the record that text names, as TOPIC/PARTITION/OFFSET or
// PATH/OFFSET. A cut knows which positions are settled, and not always which of them held
// a record: ask then asks the source; nil: nobody can.
func Contains(ctx context.Context, c *manifest.Checkpoint, text string, ask OpenSource) (Containing, error) {
	r, err := audit.ParseRecord(text)
	if err != nil {
		return Containing{}, advice.Usage.Wrap("as in --contains clicks/3/81234, or --contains logs/day_3.tsv/1048576", err)
	}
	found, names := audit.Contains(&c.Manifest.Cut, r)
	v := Containing{About: aboutOf(c), Record: text, Found: found}
	if len(found) == 0 {
		known := false
		for _, n := range names {
			known = known || n == r.Segment || strings.HasSuffix(n, "/"+r.Segment)
		}
		if !known {
			return v, advice.NotFound.Errorf(suggest.Hint(r.Segment, names, "files or partitions"), "the checkpoint knows nothing called %s (a file that was listed after the checkpoint was saved has nothing in the model)", r.Segment)
		}
		v.Found = []audit.Where{} // the file is known, the offset is not: it was not listed then
	}
	for i := range found {
		if found[i].Unsure() && ask != nil {
			v.notAsked(askSource(ctx, c, &found[i], ask))
		}
		v.In = v.In || found[i].In()
		v.Unsure = v.Unsure || found[i].Unsure()
	}
	v.Unsure = v.Unsure && !v.In
	return v, nil
}

// Write prints the answer, and the state of the record in each pass.
func (v *Containing) Write(w io.Writer) {
	if len(v.Found) == 0 {
		i := strings.LastIndexByte(v.Record, '/')
		fmt.Fprintf(w, "no: %s had no offset %s when the checkpoint was saved\n", v.Record[:i], v.Record[i+1:])
	}
	for i := range v.Found {
		writeWhere(w, &v.Found[i])
	}
	for _, why := range v.Why {
		fmt.Fprintf(w, "the source was asked: %s\n", why)
	}
}

func writeWhere(w io.Writer, f *audit.Where) {
	word := "no"
	switch {
	case f.In():
		word = "yes"
	case f.Unsure():
		word = "not known"
	}
	place := fmt.Sprintf("the record at %s offset %d", f.Name, f.Offset)
	if f.Unit == "bytes" { // only the file says whether one begins there
		place = fmt.Sprintf("a record whose first byte is %s offset %d", f.Name, f.Offset)
	}
	fmt.Fprintf(w, "%s: %s (dataset %s, partition %s)\n", word, place, f.Dataset, f.Label)
	for _, p := range f.Passes {
		line := map[string]string{"in": "in the model", "out": "not in the model", "excluded": "excluded", "dropped": "dropped: not in the model",
			"settled": "this position is settled; whether a record was there is not known here (give the dataset's spec with -f, or ask while a master runs)",
			"empty":   "this position is settled, and holds no record: it is a transaction's mark, or a record of an aborted transaction"}[p.State]
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
