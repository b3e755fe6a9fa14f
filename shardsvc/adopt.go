package shardsvc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// A foreign cut is one that this master does not keep. Another master wrote it, or this one
// before it lost its state. It fits if its datasets are applied and its partitions are
// those of the job.

// fit matches each partition of a foreign cut to a partition of the job, and lays the cut
// on their lines. It changes nothing. A partition that the job does not have is new.
//
// If the job's partition is untouched, the cut's partition replaces it, unless the job
// keeps a cut already (known). Untouched means that none of it is settled, and that only r
// (nil: only the processes that go back) holds some of it. The cut then gives the numbers
// of the segments. Example: the cut has segments 0 to 4, and an empty master has listed the
// same files as 0 and 1.
func (lg *ledger) fit(body *cut.Cut, r *account, known bool) ([]fitted, error) {
	if err := body.Validate(); err != nil {
		return nil, err
	}
	if (body.Rank != cut.Group) != (lg.perRank) {
		return nil, fmt.Errorf("the checkpoint is that of %s, and the job's model is %s", kindOf(int64(body.Rank)), lg.cfg.Model)
	}
	var all []fitted
	for i := range body.Datasets {
		s := &body.Datasets[i]
		d := lg.named(s.Name)
		if d == nil {
			return nil, fmt.Errorf("dataset %q of the checkpoint is not applied: headrace dataset apply -f FILE first", s.Name)
		}
		if err := d.fits(s); err != nil {
			return nil, fmt.Errorf("dataset %q: %w", s.Name, err)
		}
		for j := range s.Partitions {
			f, err := d.fitPartition(&s.Partitions[j])
			if err != nil && f.p != nil && !known && lg.untouched(f.p, r) {
				old := f.p
				f, err = d.fitNew(&s.Partitions[j], old.pushedAfter(&s.Partitions[j])...)
				f.old = old
			}
			if err != nil {
				return nil, fmt.Errorf("dataset %q: %w", s.Name, err)
			}
			all = append(all, f)
		}
	}
	return all, nil
}

func kindOf(rank int64) string {
	if rank == cut.Group {
		return "a whole group"
	}
	return fmt.Sprintf("rank %d alone", rank)
}

func (lg *ledger) named(name string) *dataset {
	for _, d := range lg.datasets {
		if d != nil && d.name == name {
			return d
		}
	}
	return nil
}

func (d *dataset) fits(s *cut.Dataset) error {
	has := cmp.Or(s.Shuffle, &cut.Shuffle{})
	switch o := &d.opt; {
	case o.Shuffle != (s.Shuffle != nil) || o.Shuffle && (o.Seed != has.Seed || o.Block != has.Block || o.InOrder != has.InOrder):
		return fmt.Errorf("its shuffle is not that of the checkpoint: it has shuffle %v, seed %d, block %d, and in the checkpoint it had shuffle %v, seed %d, block %d",
			o.Shuffle, o.Seed, o.Block, s.Shuffle != nil, has.Seed, has.Block)
	case o.VirtualRanks != has.VirtualRanks:
		return fmt.Errorf("it has %d virtual ranks, and in the checkpoint it had %d: with another number the batches are not the same", o.VirtualRanks, has.VirtualRanks)
	case o.Unit != s.Unit:
		return fmt.Errorf("it counts %s, and in the checkpoint it counted %s", o.Unit, s.Unit)
	}
	return nil
}

// fitted is one partition of a foreign cut.
type fitted struct {
	ds       *dataset
	in       *cut.Partition
	p        *partition // the job's own partition; nil: the cut's is added
	old      *partition // the job's untouched partition that the cut's replaces
	with     *partition // the partition after adopting
	sets     []line.Set
	segments []sources.Segment // that the job does not have
	complete bool              // adopting makes it complete
	begins   *sources.Segment  // first segment of the cut, if adopting moves the start of a live partition that nobody has read from
	split    bool              // adopting lists trimmed segments of p one by one again, as with does
	lost     bool              // its pushed records are gone
}

func (d *dataset) fitPartition(q *cut.Partition) (f fitted, err error) {
	f = fitted{ds: d, in: q, p: d.byIdentity[q.Identity], segments: q.Segments, complete: q.Complete}
	if has, u := d.opt.UnitOf(q.Identity), cmp.Or(q.Unit, d.opt.Unit); has != u {
		return f, fmt.Errorf("partition %s counts %s, and in the checkpoint it counted %s: its kind of source or its format was changed", q.Label(), has, u)
	}
	if f.p == nil {
		in := d.opt.inputOf(q.Identity) // the partitions of one input are listed together
		if d.opt.isPushed(q.Identity) && slices.ContainsFunc(d.parts, func(p *partition) bool { return p.in == in }) {
			return d.fitLost(q)
		}
		if d.partsAll || slices.ContainsFunc(d.parts, func(p *partition) bool { return p.in == in }) {
			return f, fmt.Errorf("the checkpoint has read partition %s. The dataset does not have that partition: it has %s. If the topic or the files were deleted and made again, the checkpoint's records do not exist any more, and the job can only start over (resume=start)", inFull(q.Name, q.Identity), d.identities())
		}
		return d.fitNew(q)
	}
	with := *f.p
	with.Segs, with.passes = slices.Clone(f.p.Segs), nil
	with.folded = 0
	for base := int64(0); len(f.segments) > 0 && f.segments[0].ID <= with.LastSeg; f.segments = f.segments[1:] {
		s := &f.segments[0]
		if f.p.begun() == 0 && with.beginAt(s) {
			f.begins = s
		}
		if with.split(&line.Segment{ID: s.ID, Start: s.Start, End: s.End, Sealed: s.Sealed, Base: base, Locator: s.Locator, Name: s.Name}) {
			f.split = true
		}
		if err := with.agrees(s, base); err != nil {
			return f, err
		}
		base += s.End - s.Start
	}
	if err := with.knowsNone(f.segments); err != nil {
		return f, err
	}
	switch last := len(q.Segments); {
	case with.Complete && len(f.segments) > 0:
		return f, refusal(RefusedSegments, "partition %s ends with segment %d, and the checkpoint has read segment %d (%s): the source has changed", q.Label(), with.LastSeg, f.segments[0].ID, f.segments[0].Name)
	case d.opt.Shuffle && last > 0 && with.LastSeg > q.Segments[last-1].ID:
		return f, fmt.Errorf("partition %s has segments up to %d now, and the checkpoint was shuffled over those up to %d. With more segments the shuffled order is another one, so its positions do not mean the same records: move files that came later out of the folder, or set the end that the topic had then", q.Label(), with.LastSeg, q.Segments[last-1].ID)
	default:
		f.complete = q.Complete && !with.Complete && last > 0 && with.LastSeg <= q.Segments[last-1].ID
	}
	return f, f.into(&with)
}

// fitNew fits a partition that the job does not have, or whose place the cut's partition
// takes. Other segments of the source are listed after those of the cut. If the cut has a
// later pass, or a shuffled one, no other segments may follow: that pass was planned over
// the cut's segments.
func (d *dataset) fitNew(q *cut.Partition, after ...sources.Segment) (f fitted, err error) {
	n := len(q.Passes)
	fixed := d.opt.Shuffle && (n > 0 || len(q.Excluded) > 0) || q.Later()
	f = fitted{ds: d, in: q, segments: slices.Concat(q.Segments, after), complete: q.Complete && fixed}
	p := &partition{ds: d, name: q.Name, Table: d.noSegments()}
	if err := p.named(q.Identity); err != nil {
		return f, err
	}
	return f, f.into(p)
}

// fitLost fits a partition of pushed records that are gone: its stream is not that of the
// dataset. The records that the cut has stay in the model. No others can come, so the
// partition is complete. Nobody knows what was pushed after the cut.
func (d *dataset) fitLost(q *cut.Partition) (f fitted, err error) {
	if !d.opt.GoOnAfterLoss {
		return f, errors.New(lostPushed(inFull(q.Name, q.Identity)))
	}
	f = fitted{ds: d, in: q, segments: q.Segments, complete: true, lost: true}
	p := &partition{ds: d, name: q.Name, Table: d.noSegments()}
	if err := p.named(q.Identity); err != nil {
		return f, err
	}
	return f, f.into(p)
}

// into lays the cut on the lines of p, which is not part of the job yet, and adds the cut's
// segments to it.
func (f *fitted) into(p *partition) (err error) {
	d, q := f.ds, f.in
	f.with = p
	for i := range f.segments {
		p.Extend(&f.segments[i])
	}
	if f.complete {
		p.Complete = true
	}
	if int64(q.Done)+int64(len(q.Passes)) > int64(d.opt.Passes) {
		return fmt.Errorf("partition %s: the checkpoint is in a pass after the last one, the dataset has %d: set passes higher", q.Label(), d.opt.Passes)
	}
	if q.Later() && !p.Complete {
		return fmt.Errorf("partition %s: the checkpoint is in a later pass than the first, and not all segments are known yet", q.Label())
	}
	if n := len(q.Passes); n > 0 && q.Passes[n-1].Pass >= uint32(d.opt.Passes) {
		return fmt.Errorf("partition %s: the checkpoint is in pass %d, counted from 0, and the dataset has %d passes: set passes higher", q.Label(), q.Passes[n-1].Pass, d.opt.Passes)
	}
	if f.sets, err = p.sets(q); err != nil {
		return fmt.Errorf("partition %s: %w", q.Label(), err)
	}
	return nil
}

// untouched says whether nothing of p is settled or excluded, and only processes that go
// back hold some of it.
func (lg *ledger) untouched(p *partition, r *account) bool {
	if p.folded > 0 || len(p.excluded) > 0 {
		return false
	}
	for _, ps := range p.passes {
		if ps.done.Low > 0 || len(ps.done.Above) > 0 || len(ps.acks) > 0 {
			return false
		}
		for l := ps.leases; l != nil; l = l.pnext {
			if lg.perRank && l.w.account != r {
				return false
			}
		}
	}
	return true
}

// inFull is a name and the identity that it stands for, because another topic may have the
// name by now.
func inFull(name, identity string) string {
	if name == "" {
		return identity
	}
	return name + " (" + identity + ")"
}

func (d *dataset) identities() string {
	if len(d.parts) == 0 {
		return "none"
	}
	var some []string
	for _, p := range d.parts {
		if len(some) == maxNamed {
			some = append(some, "more")
			break
		}
		some = append(some, inFull(p.name, p.identity))
	}
	return strings.Join(some, ", ")
}

// beginAt moves the start of a live partition to the start that the cut has, if nobody has
// read from the partition. It says whether that is another place. The two may differ: the
// job has looked for the start again (start: latest, or the oldest record that retention
// has left), and the cut says where reading really began.
func (p *partition) beginAt(s *sources.Segment) bool {
	if !p.Growing() || len(p.Segs) != 1 || len(p.excluded) > 0 {
		return false
	}
	g := &p.Segs[0]
	if g.ID != s.ID || g.Start == s.Start || s.Sealed || s.Start > max(g.End, s.End) || !p.Fits(s.Start, max(g.End, s.Start)) {
		return false
	}
	g.Start, g.End = s.Start, max(g.End, s.Start)
	p.Total = g.End - g.Start
	return true
}

// agrees returns an error that says why a segment of a cut is not the known one. If the
// segment is unsealed, the cut has the end that it had at that time. A trimmed segment has
// no locator, and begins before all that were folded into it. base is where the segment
// begins on the line of the cut.
func (p *partition) agrees(s *sources.Segment, base int64) error {
	i := p.SegByID(s.ID)
	if i < 0 {
		return refusal(RefusedSegments, "partition %s: segment %d (%s) of the checkpoint is not known", p.label(), s.ID, s.Name)
	}
	g := &p.Segs[i]
	if g.Name != s.Name {
		return fmt.Errorf("partition %s: segment %d is %s, and in the checkpoint it was %s: positions do not mean the same records", p.label(), s.ID, g.Name, s.Name)
	}
	trimmed := g.Sealed && s.Sealed && (len(g.Locator) == 0) != (len(s.Locator) == 0) || len(g.Locator)+len(s.Locator) == 0
	if !bytes.Equal(g.Locator, s.Locator) && !trimmed {
		return refusal(RefusedChanged, "partition %s: segment %d (%s) is not what it was when the checkpoint was saved: the source has changed", p.label(), s.ID, s.Name)
	}
	folded := trimmed && g.Sealed && s.Sealed && s.Start < g.Start && g.LineEnd() == base+s.End-s.Start
	if g.Start != s.Start && !folded || s.Sealed && g.Sealed && g.End != s.End || g.Sealed && s.End > g.End {
		return refusal(RefusedChanged, "partition %s: segment %d (%s) is [%d, %d), and in the checkpoint it was [%d, %d): the source has changed", p.label(), s.ID, g.Name, g.Start, g.End, s.Start, s.End)
	}
	if s.End > g.End {
		if i != len(p.Segs)-1 || p.Total+s.End-g.End > line.Max {
			return fmt.Errorf("partition %s: segment %d ends at %d, and in the checkpoint at %d", p.label(), s.ID, g.End, s.End)
		}
		p.SetEnd(s.End)
	}
	return nil
}

// knowsNone returns an error if p knows one of more by another number. more are the
// segments of a cut beyond the last one of p. With such a segment the partition would have
// the same records twice. Example: p has file a as segment 0, and a cut of another life of
// the master has it as segment 7.
func (p *partition) knowsNone(more []sources.Segment) error {
	if len(more) == 0 {
		return nil
	}
	known := map[string]*line.Segment{}
	for i := range p.Segs {
		known[p.Segs[i].Name] = &p.Segs[i]
	}
	for i := range more {
		s := &more[i]
		if g := known[s.Name]; g != nil && s.Name != "" && (bytes.Equal(g.Locator, s.Locator) || g.Start == s.Start && g.End == s.End) {
			return refusal(RefusedSegments, "partition %s: segment %d (%s) of the checkpoint is segment %d here: positions do not mean the same records", p.label(), s.ID, s.Name, g.ID)
		}
	}
	return nil
}

// adopt makes the partitions and segments of a foreign cut that fits. It returns the cut
// with the job's own numbers.
func (lg *ledger) adopt(body *cut.Cut, all []fitted) *cut.Cut {
	own := *body
	own.Datasets = slices.Clone(body.Datasets)
	at := 0
	for i := range own.Datasets {
		s := &own.Datasets[i]
		s.Partitions = slices.Clone(s.Partitions)
		for j := range s.Partitions {
			f := &all[at]
			at++
			if f.old != nil {
				lg.removePartition(f.old)
			}
			if f.p == nil {
				f.p = lg.makePartition(f.ds, f.in.Identity, f.in.Name, f.in.Estimated)
			}
			if f.begins != nil {
				old := f.p.Total
				f.p.beginAt(f.begins)
				f.p.ds.total += f.p.Total - old
				lg.putSegment(f.p, &f.p.Segs[0])
			}
			if f.split {
				lg.takeSplit(f.p, f.with)
			}
			lg.growAs(f.p, f.in)
			lg.addSegments(&AddSegments{Partition: f.p.no, Segments: f.segments, Complete: f.complete})
			lg.adoptExcluded(f.p, f.in)
			if f.lost {
				lg.report(Report{Kind: ReportPushedLost, Dataset: f.ds.id, Partition: f.p.no})
			}
			q := &s.Partitions[j]
			q.Number, q.Segments, q.Complete = f.p.no, nil, false
		}
	}
	return &own
}

// removePartition forgets a partition that is untouched. No lease of it may be out.
func (lg *ledger) removePartition(p *partition) {
	d := p.ds
	for _, ps := range p.passes {
		d.planned -= ps.Units(0, ps.frontier)
		d.pending -= ps.pendingUnits
		ps.gone = true
	}
	if p.counts1() {
		d.total -= p.Total
	}
	if !p.Complete {
		d.incomplete--
	}
	d.count(p, -1)
	p.gone = true
	d.parts = slices.DeleteFunc(d.parts, func(x *partition) bool { return x == p })
	delete(d.byIdentity, p.identity)
	d.unready(p)
	lg.parts[p.no] = nil
	for _, letter := range []byte{keyPartition, keySegment, keySettled, keyAck, keyTries, keyDropped} {
		lg.fx.put(DeleteRange,
			func(b []byte) []byte { return appendNumbers(b, letter, d.id, p.no) },
			func(b []byte) []byte { return appendNumbers(b, letter, d.id, p.no+1) })
	}
}

// adoptExcluded excludes the ranges that the cut lists as excluded, and that are not
// excluded here already. In a private job it leaves out ranges that somebody here has in a
// model or holds.
func (lg *ledger) adoptExcluded(p *partition, q *cut.Partition) {
	for i := range q.Excluded {
		e := &q.Excluded[i]
		lg.begin(p, e.Pass)
		if e.Pass < p.folded || e.Pass >= p.begun() {
			continue
		}
		ps := p.passes[e.Pass-p.folded]
		start, ok1 := ps.OnLine(line.Place{Segment: e.Piece.Segment, Offset: e.Piece.Start})
		end, ok2 := ps.OnLine(line.Place{Segment: e.Piece.Segment, Offset: e.Piece.End})
		if !ok1 || !ok2 || start >= end || ps.Units(start, end) < 1 || ps.inUse(start, end, lg.perRank) {
			continue
		}
		lg.addExclusion(p, exclusion{listed{e.Pass, e.Piece.Segment, e.Piece.Start, e.Piece.End, ps.Units(start, end)}, e.Kind, e.Reason, e.When, ""})
		ps.EachPiece(start, end, func(_ int64, s *line.Segment, start, end int64) {
			lg.report(Report{Kind: ReportExcluded, Dataset: p.ds.id, Partition: p.no, Pass: e.Pass, Segment: s.ID,
				Start: start, End: end, Units: end - start, Reason: e.Kind + ": " + e.Reason, Bad: e.Kind == badRecord, Old: e.Kind == tooOld})
		})
	}
}

// inUse says whether any of [start, end) is excluded already. With others it also says so
// if any of it is settled or leased.
func (ps *pass) inUse(start, end int64, others bool) bool {
	known := ps.excludedOnLine()
	if i, j := known.Overlap(start, end); i < j {
		return true
	}
	if !others {
		return false
	}
	for l := ps.leases; l != nil; l = l.pnext {
		if l.prefix < end && start < l.end {
			return true
		}
	}
	return ps.done.Touches(start, end)
}

// growAs moves the head of p as far as the segments of the cut prove.
func (lg *ledger) growAs(p *partition, q *cut.Partition) {
	for i := range q.Segments {
		lg.growTo(p, line.Place{Segment: q.Segments[i].ID, Offset: q.Segments[i].End})
	}
}

// linesOfFit lays a foreign cut on the lines of the partitions that are there.
func (lg *ledger) linesOfFit(all []fitted) *lines {
	l := lg.newLines()
	for i := range all {
		if p := all[i].p; p != nil {
			l.put(p, all[i].in, all[i].sets)
		}
	}
	return l
}

// taken says why rank r cannot go back to a foreign cut: another model has some of its
// records, or another rank holds them.
func (lg *ledger) taken(r *account, own *lines, all []fitted) error {
	for i := range all {
		f := &all[i]
		if f.p == nil {
			continue
		}
		for n := range f.sets {
			free := f.sets[n].Minus(own.of(f.p, uint32(n)))
			ps := f.p.line(uint32(n))
			for _, k := range ps.acks {
				if k.rank == r.no {
					free.Clear(k.start, k.end)
				}
			}
			for _, x := range free {
				at := ps.StartPlace(x.Start)
				where := fmt.Sprintf("partition %s pass %d: records of the checkpoint from segment %d offset %d on", f.p.label(), n, at.Segment, at.Offset)
				if ps.settles(x.Start, x.End, r) {
					return refusal(RefusedTaken, "%s are in another model, or excluded, by now", where)
				}
				for l := ps.leases; l != nil; l = l.pnext {
					if l.w.account != r && l.prefix < x.End && x.Start < l.end {
						return refusal(RefusedTaken, "%s are leased to rank %d by now", where, l.w.account.no)
					}
				}
			}
		}
	}
	return nil
}

// settles says whether another rank than r settled any of [start, end).
func (ps *pass) settles(start, end int64, r *account) bool {
	if ps.base.Touches(start, end) {
		return true
	}
	return slices.ContainsFunc(ps.acks, func(k piece) bool { return k.rank != r.no && k.start < end && start < k.end })
}
