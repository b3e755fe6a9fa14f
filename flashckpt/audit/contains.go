package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// Record is a place to look up: the record that begins at an offset of a segment. A cut
// cannot tell whether a record begins there, because it does not read the data. The
// segment is named by its name (a file's path, a topic and partition), by the end of its
// path, or by its partition's name or identity.
type Record struct {
	Segment string
	Offset  int64
}

// ParseRecord reads NAME/OFFSET: clicks/3/81234, or logs/day_3.tsv/81234.
func ParseRecord(text string) (Record, error) {
	i := strings.LastIndexByte(text, '/')
	if i > 0 {
		if offset, err := strconv.ParseInt(text[i+1:], 10, 64); err == nil && offset >= 0 {
			return Record{text[:i], offset}, nil
		}
	}
	return Record{}, fmt.Errorf("%q: must be TOPIC/PARTITION/OFFSET, or PATH/OFFSET", text)
}

// Where says what a cut knows of a record in one segment that has its name.
type Where struct {
	Dataset   string    `json:"dataset"`
	Partition string    `json:"partition"`
	Label     string    `json:"label"` // what people call it
	Segment   int64     `json:"segment"`
	Name      string    `json:"name"`
	Offset    int64     `json:"offset"`
	Unit      string    `json:"unit"`   // of the offset: bytes | records | entries
	Passes    []Verdict `json:"passes"` // those in which something is settled
}

// Verdict is about one pass.
type Verdict struct {
	Pass uint32 `json:"pass"`
	// State is in | out | excluded | dropped | settled | empty. Settled: the position is settled,
	// and the cut does not know whether it held a record. Empty: the source says that the
	// position holds no record.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Vague  bool   `json:"vague,omitempty"` // State is in, but the record may be one of those that were dropped
}

// In says whether the record is in the model, by any pass.
func (w *Where) In() bool { return w.is("in") }

// Unsure says whether some pass has settled the position, and it is not known whether a
// record was there.
func (w *Where) Unsure() bool { return w.is("settled") }

func (w *Where) is(state string) bool {
	return slices.ContainsFunc(w.Passes, func(v Verdict) bool { return v.State == state })
}

// HasRecord turns the state settled into in or empty: the source says whether the position holds
// a record.
func (w *Where) HasRecord(has bool) {
	state := "empty"
	if has {
		state = "in"
	}
	for i := range w.Passes {
		if w.Passes[i].State == "settled" {
			w.Passes[i].State = state
		}
	}
}

// Contains looks a record up. If no segment of that name covers the offset, the record
// was not known when the cut was taken, and found is empty. names are the names of the
// cut's segments, for a hint.
func Contains(c *cut.Cut, r Record) (found []Where, names []string) {
	seen := map[string]bool{}
	for i := range c.Datasets {
		d := &c.Datasets[i]
		for j := range d.Partitions {
			p := &d.Partitions[j]
			if p.Name != "" && !seen[p.Name] { // if nothing of a partition is settled, the cut has none of its segments
				seen[p.Name] = true
				names = append(names, p.Name)
			}
			for k := range p.Segments {
				g := &p.Segments[k]
				if !seen[g.Name] {
					seen[g.Name] = true
					names = append(names, g.Name)
				}
				grows := !g.Sealed && k == len(p.Segments)-1
				identity, _ := d.VirtualRank(p)
				if (calls(r.Segment, g.Name, identity) || r.Segment == p.Name) && r.Offset >= g.Start && (r.Offset < g.End || grows) {
					found = join(found, where(d, p, g, r.Offset))
				}
			}
		}
	}
	return exactFirst(found, r.Segment), names
}

// join adds w. With virtual ranks, each pass may have the record in another partition; the
// answers of all partitions are joined to one.
func join(all []Where, w Where) []Where {
	for i := range all {
		if x := &all[i]; x.Dataset == w.Dataset && x.Partition == w.Partition && x.Segment == w.Segment {
			x.Passes = append(x.Passes, w.Passes...)
			slices.SortFunc(x.Passes, func(a, b Verdict) int { return cmp.Compare(a.Pass, b.Pass) })
			return all
		}
	}
	return append(all, w)
}

func calls(asked, name, identity string) bool {
	return asked == name || asked == identity || strings.HasSuffix(name, "/"+asked)
}

// exactFirst drops segments that match only in part, if one has exactly this name.
func exactFirst(all []Where, asked string) []Where {
	alike := func(w Where) bool { return w.Name != asked && w.Partition != asked && w.Label != asked }
	if slices.ContainsFunc(all, func(w Where) bool { return !alike(w) }) {
		all = slices.DeleteFunc(all, alike)
	}
	return all
}

func where(d *cut.Dataset, p *cut.Partition, g *sources.Segment, offset int64) Where {
	identity, _ := d.VirtualRank(p)
	w := Where{Dataset: d.Name, Partition: identity, Label: cmp.Or(p.Name, identity), Segment: g.ID, Name: g.Name, Offset: offset, Unit: d.UnitOf(p), Passes: []Verdict{}}
	for n := range p.Done {
		w.add(d, p, g, n, offset)
	}
	for i := range p.Passes {
		w.add(d, p, g, p.Passes[i].Pass, offset)
	}
	return w
}

func (w *Where) add(d *cut.Dataset, p *cut.Partition, g *sources.Segment, pass uint32, offset int64) {
	s := newSpace(d, p, pass)
	if at, own := s.order(g.ID, offset); own {
		v := verdict(p, s, pass, at)
		if v.State == "in" && d.UnitOf(p) == positions && holes(d, p, pass) {
			v.State = "settled"
		}
		w.Passes = append(w.Passes, v)
	}
}

// positions is the unit of brokers: each record has one, and some hold no record.
const positions = "records"

// holes says whether some positions of the pass that are in the model may have held no record. A
// broker gives control records positions too, and aborted transactions and compaction leave
// positions without a record.
func holes(d *cut.Dataset, p *cut.Partition, pass uint32) bool {
	of := passOf(d, p, pass)
	return of.Records == nil || of.Records.Untold > 0 || of.Records.Rows < of.Units
}

func verdict(p *cut.Partition, s *space, pass uint32, at cut.Place) Verdict {
	v := Verdict{Pass: pass, State: "out"}
	for i := range p.Excluded {
		if e := &p.Excluded[i]; e.Pass == pass && (cut.Set{e.Piece}).Has(at) {
			return Verdict{Pass: pass, State: "excluded", Reason: strings.TrimPrefix(e.Kind+": "+e.Reason, ": ")}
		}
	}
	for i := range p.Dropped {
		if x := &p.Dropped[i]; x.Pass == pass && (cut.Set{x.Piece}).Has(at) {
			return Verdict{Pass: pass, State: "dropped", Reason: fmt.Sprintf("no full round had it; the last one was step %d", x.Step)}
		}
	}
	for i := range p.Passes {
		if p.Passes[i].Pass == pass && cut.NewSet(p.Passes[i].Ranges.Pieces(p.Segments, cut.Dropped)).Has(at) {
			return Verdict{Pass: pass, State: "dropped"}
		}
	}
	if members(p, pass, s).Has(at) {
		v.State, v.Vague = "in", vague(p, pass) > 0 && below(p, pass, at)
	}
	return v
}

// below says whether a place lies below the low mark of a pass. Only there a cut does not say which
// units were dropped.
func below(p *cut.Partition, pass uint32, at cut.Place) bool {
	for i := range p.Passes {
		if low := p.Passes[i].Low; p.Passes[i].Pass == pass {
			return at.Compare(low) < 0
		}
	}
	return true
}
