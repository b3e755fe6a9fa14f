package serve

import (
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"github.com/headrace/headrace/sources"
)

// eventLag returns how far acked event time lags behind now, in seconds, in the partition
// where it lags most. nil: no event time is known.
func eventLag(d *shardsvc.DatasetInfo, now time.Time) *float64 {
	lag := 0.0
	switch {
	case d.Records.Newest == 0:
		return nil
	case d.Reached != 0:
		lag = max(0, now.Sub(time.UnixMilli(d.Reached)).Seconds())
	}
	return &lag
}

func storedProto(d shardsvc.DatasetInfo) (*headracev1.Dataset, error) {
	st, err := decodeStored(d.Spec)
	if err != nil {
		return nil, callStatus(fmt.Errorf("dataset %q: %w", d.Name, err))
	}
	return datasetProto(d, st), nil
}

func datasetProto(d shardsvc.DatasetInfo, st stored) *headracev1.Dataset {
	out := &headracev1.Dataset{
		Id: d.ID, Name: d.Name, Yaml: wire.Valid(st.yaml), SpecJson: string(st.json), State: string(d.State), Reason: wire.Valid(d.Reason),
		Counts: countsProto(d.Counts, d.Options.Unit), Partitions: uint32(d.Partitions), ListingComplete: d.ListingComplete,
		Records: wire.TallyOf(&d.Records), Unit: d.Options.Unit, Passes: uint32(d.Options.Passes), Pass: d.Pass, Bad: badProto(d.Bad),
		Live: st.spec.Source.Traits().Live, EventLagSeconds: eventLag(&d, time.Now()),
	}
	if old := &d.Options.Backfill; old.Kind != "" {
		out.Backfill, out.BackfillUnit = countsProto(d.Backfill, old.Unit), old.Unit
	}
	return out
}

// createdProto returns a dataset that Apply is about to create.
func createdProto(id uint32, st stored) *headracev1.Dataset {
	o := options(st.spec)
	return datasetProto(shardsvc.DatasetInfo{ID: id, Name: st.spec.Name, Options: o, State: shardsvc.DatasetListing}, st)
}

func countsProto(c shardsvc.Counts, unit string) *headracev1.Counts {
	in := func(offsets int64) int64 { return sources.InUnits(unit, offsets) }
	return &headracev1.Counts{
		Listed: in(c.Listed), Planned: in(c.Planned), Pending: in(c.Pending), Leased: in(c.Leased), Settled: in(c.Settled),
		Acked: in(c.Acked), Excluded: in(c.Excluded), Dropped: in(c.Dropped), Committed: in(c.Committed), Bound: in(c.Bound),
	}
}

func passProto(p *shardsvc.PassInfo) *headracev1.PartitionState {
	unit := p.Unit
	d := distancesIn(p.Distances, unit)
	out := &headracev1.PartitionState{
		Number: p.Number, Identity: wire.Valid(p.Identity), Label: wire.Valid(p.Label), Pass: p.Pass, Counts: countsProto(p.Counts, unit), Leases: uint32(p.Leases), Unit: unit,
		Distances: &headracev1.Distances{Committed: d.Committed, Bound: d.Bound, Acked: d.Acked, Leased: d.Leased,
			Planned: d.Planned, Head: d.Head, Estimated: d.Estimated},
	}
	for _, l := range p.Lease {
		out.Lease = append(out.Lease, &headracev1.LeaseState{
			Token: wire.TokenOf(l.Token), Agent: wire.Valid(l.Agent), Rank: l.Rank, Segment: l.Segment,
			Start: l.Start, Prefix: l.Prefix, End: l.End, AgeSeconds: seconds(l.Age),
		})
	}
	return out
}

func distancesIn(d shardsvc.Distances, unit string) shardsvc.Distances {
	for _, n := range []*int64{&d.Committed, &d.Bound, &d.Acked, &d.Leased, &d.Planned, &d.Head} {
		*n = sources.InUnits(unit, *n)
	}
	return d
}

func excludedProto(e *shardsvc.ExcludedInfo) *headracev1.ExcludedRange {
	return &headracev1.ExcludedRange{Partition: e.Partition, Identity: wire.Valid(e.Identity), Label: wire.Valid(e.Label), Pass: e.Pass, Segment: e.Segment,
		Start: e.Start, End: e.End, Kind: e.Kind, Reason: wire.Valid(e.Reason), UnixMs: e.When, Column: wire.Valid(e.Column)}
}

func droppedProto(x *shardsvc.DroppedInfo) *headracev1.DroppedRange {
	return &headracev1.DroppedRange{Partition: x.Partition, Identity: wire.Valid(x.Identity), Label: wire.Valid(x.Label), Pass: x.Pass, Segment: x.Segment,
		Start: x.Start, End: x.End, Step: x.Step}
}

func jobProto(j shardsvc.JobInfo, out *headracev1.JobReply) {
	out.Job, out.Model, out.Term, out.Epoch, out.Generation = j.Job, j.Model, j.Term, j.Epoch, j.Generation
	out.GrantsTotal, out.AcksTotal, out.AcksRefusedTotal = j.Grants, j.Acks, j.Refused
	out.ReclaimsTotal, out.StealsTotal = j.Reclaims, j.Steals
	out.State = "running"
	if j.Recovering {
		out.State = "recovering"
	}
}

func agentProto(a shardsvc.AgentInfo, facts *wire.About, now shardsvc.Time) *headracev1.AgentState {
	out := &headracev1.AgentState{Name: wire.Valid(a.Name), Session: "live", Workers: uint32(a.Workers)}
	if a.Session == 0 {
		out.Session = "lost"
	}
	if a.LastHeard != 0 {
		// A Tick with blocked time sets the core's clock back, so LastHeard may lie ahead
		// of now.
		out.LastHeardSeconds = seconds(max(now-a.LastHeard, 0))
	}
	if facts != nil { // else it is known from the term before, and has not connected yet
		out.Host, out.Pid, out.Version = facts.Host, facts.Pid, facts.Version
		out.Gpus = append(out.Gpus, facts.Gpus...)
	}
	return out
}

func workerProto(w shardsvc.WorkerInfo) *headracev1.WorkerState {
	return &headracev1.WorkerState{
		Rank: w.Rank, Incarnation: w.Incarnation, Agent: wire.Valid(w.Agent), Pid: w.Pid, State: w.State, Rate: w.Rate,
		UnitsAcked: w.UnitsAcked, Step: w.Step, Leases: uint32(w.Leases), WaitSeconds: w.WaitSeconds,
		StepSeconds: w.StepSeconds, RowsYielded: w.RowsYielded,
	}
}

func seconds(t shardsvc.Time) float64 { return float64(t) / float64(shardsvc.Second) }
