package serve

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// wireCut is a cut as manifests and messages have it. Ranges of the core may
// span segments; those of a manifest do not.
func wireCut(c *shardsvc.Cut, job, model string) *manifest.Cut {
	out := &manifest.Cut{Version: manifest.Version, ID: manifest.CutID(c.ID), Job: job, Model: model, Epoch: c.Epoch, Generation: c.Generation,
		WorldSize: max(c.World, 1), Step: c.Step, Order: c.Order, Exact: c.Exact || model != "shared", Datasets: []manifest.Dataset{}}
	if c.Rank != shardsvc.Group {
		rank := uint32(c.Rank)
		out.Rank = &rank
	}
	for i := range c.Datasets {
		d := &c.Datasets[i]
		to := manifest.Dataset{Name: d.Name, Unit: d.Unit, Partitions: make([]manifest.Partition, len(d.Partitions))}
		if d.Shuffle {
			to.Shuffle = &manifest.Shuffle{Seed: d.Seed, Block: d.Block, InOrder: d.InOrder, VirtualRanks: d.VirtualRanks}
		}
		for j := range d.Partitions {
			to.Partitions[j] = wirePartition(&d.Partitions[j], d.Shuffle)
		}
		out.Datasets = append(out.Datasets, to)
	}
	return out
}

func wirePartition(p *shardsvc.CutPartition, shuffled bool) manifest.Partition {
	out := manifest.Partition{Identity: valid(p.Identity), Name: valid(p.Name), Number: p.Number, Estimated: p.Estimated, Complete: p.Complete,
		Done: p.PassesDone, DoneUnits: manifest.Units(p.Done), DoneRecords: wireRecords(p.Records, p.PassesDone > 0),
		Segments: make([]manifest.Segment, len(p.Segments)), Passes: make([]manifest.Pass, len(p.Passes))}
	for i, g := range p.Segments {
		out.Segments[i] = manifest.Segment{ID: g.ID, Start: g.Start, End: g.End, Sealed: g.Sealed, Name: valid(g.Name), Locator: g.Locator}
	}
	for i := range p.Passes {
		ps := &p.Passes[i]
		to := manifest.Pass{Pass: ps.Pass, Low: manifest.Place{ps.Low.Segment, ps.Low.Offset}, Units: manifest.Units(ps.Units), Records: wireRecords(ps.Records, true)}
		for _, r := range ps.Ranges {
			list := listOf(&to.Ranges, r.Kind)
			*list = appendSplit(*list, r, p.Segments, shuffled)
		}
		out.Passes[i] = to
	}
	for _, e := range p.Excluded {
		out.Excluded = append(out.Excluded, manifest.Excluded{Pass: e.Pass, Range: manifest.Range{e.Segment, e.Start, e.End}, Units: e.Units, Kind: e.Kind, Reason: valid(e.Reason), When: e.When})
	}
	return out
}

func wireRecords(t shardsvc.Tally, there bool) *manifest.Records {
	if !there {
		return nil
	}
	return &manifest.Records{Rows: t.Rows, Untold: t.Untold, Oldest: t.Oldest, Newest: t.Newest}
}

// coreRecords: a manifest that says nothing of the records is of an older version.
func coreRecords(r manifest.Records) shardsvc.Tally {
	return shardsvc.Tally{Rows: r.Rows, Untold: r.Untold, Oldest: r.Oldest, Newest: r.Newest}
}

func listOf(r *manifest.Ranges, kind shardsvc.Kind) *[]manifest.Range {
	switch kind {
	case shardsvc.Excluded:
		return &r.Excluded
	case shardsvc.Dropped:
		return &r.Dropped
	}
	return &r.Acked
}

// appendSplit cuts a range at the borders of segments.
func appendSplit(list []manifest.Range, r shardsvc.CutRange, segs []sources.Segment, shuffled bool) []manifest.Range {
	if shuffled || r.Start.Segment == r.End.Segment {
		return append(list, manifest.Range{r.Start.Segment, r.Start.Offset, r.End.Offset})
	}
	first, _ := slices.BinarySearchFunc(segs, r.Start.Segment, func(g sources.Segment, id int64) int { return cmp.Compare(g.ID, id) })
	for i := first; i < len(segs) && segs[i].ID <= r.End.Segment; i++ {
		g := &segs[i]
		start, end := g.Start, g.End
		if g.ID == r.Start.Segment {
			start = r.Start.Offset
		}
		if g.ID == r.End.Segment {
			end = r.End.Offset
		}
		if start < end {
			list = append(list, manifest.Range{g.ID, start, end})
		}
	}
	return list
}

// coreCut is the inverse. It refuses a cut of another job or model.
func coreCut(c *manifest.Cut, job, model string) (*shardsvc.Cut, error) {
	switch {
	case c.Job != job:
		return nil, fmt.Errorf("the cut is of job %q, this master runs %q", c.Job, job)
	case c.Model != model:
		return nil, fmt.Errorf("the cut is of a %s model, this job's is %s", c.Model, model)
	}
	out := &shardsvc.Cut{ID: uint64(c.ID), Epoch: c.Epoch, Generation: c.Generation, Rank: shardsvc.Group, Step: c.Step, World: c.WorldSize, Exact: c.Exact, Order: c.Order}
	if c.Rank != nil {
		out.Rank = int64(*c.Rank)
	}
	for i := range c.Datasets {
		d := &c.Datasets[i]
		to := shardsvc.CutDataset{Name: d.Name, Unit: d.Unit}
		if d.Shuffle != nil {
			to.Shuffle, to.Seed, to.Block = true, d.Shuffle.Seed, d.Shuffle.Block
			to.InOrder, to.VirtualRanks = d.Shuffle.InOrder, d.Shuffle.VirtualRanks
		}
		for j := range d.Partitions {
			to.Partitions = append(to.Partitions, corePartition(&d.Partitions[j]))
		}
		out.Datasets = append(out.Datasets, to)
	}
	return out, out.Check()
}

func corePartition(p *manifest.Partition) shardsvc.CutPartition {
	out := shardsvc.CutPartition{Number: p.Number, Identity: p.Identity, Name: p.Name, Estimated: p.Estimated, Complete: p.Complete,
		PassesDone: p.Done, Done: shardsvc.CutUnits(p.DoneUnits), Records: coreRecords(p.DoneCounted())}
	for _, g := range p.Segments {
		out.Segments = append(out.Segments, sources.Segment{ID: g.ID, Start: g.Start, End: g.End, Sealed: g.Sealed, Locator: g.Locator, Name: g.Name})
	}
	for i := range p.Passes {
		ps := &p.Passes[i]
		to := shardsvc.CutPass{Pass: ps.Pass, Low: shardsvc.Place{Segment: ps.Low.Segment(), Offset: ps.Low.Offset()}, Units: shardsvc.CutUnits(ps.Units), Records: coreRecords(ps.Counted())}
		for _, l := range []struct {
			kind shardsvc.Kind
			list []manifest.Range
		}{{shardsvc.Acked, ps.Ranges.Acked}, {shardsvc.Excluded, ps.Ranges.Excluded}, {shardsvc.Dropped, ps.Ranges.Dropped}} {
			for _, r := range l.list {
				to.Ranges = append(to.Ranges, shardsvc.CutRange{Kind: l.kind,
					Start: shardsvc.Place{Segment: r.Segment(), Offset: r.Start()}, End: shardsvc.Place{Segment: r.Segment(), Offset: r.End()}})
			}
		}
		slices.SortFunc(to.Ranges, func(a, b shardsvc.CutRange) int {
			return cmp.Or(cmp.Compare(a.Start.Segment, b.Start.Segment), cmp.Compare(a.Start.Offset, b.Start.Offset))
		})
		out.Passes = append(out.Passes, to)
	}
	for _, e := range p.Excluded {
		out.Excluded = append(out.Excluded, shardsvc.CutExcluded{Pass: e.Pass, Segment: e.Range.Segment(), Start: e.Range.Start(), End: e.Range.End(), Units: e.Units, Kind: e.Kind, Reason: e.Reason, When: e.When})
	}
	return out
}
