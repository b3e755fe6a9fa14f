package main

import (
	"encoding/json"
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/terminal"
)

// The views are what -o json and -o yaml promise (docs/CLI.md): names and types
// of their fields only ever grow. Amounts are in the dataset's unit.

type countsView struct {
	Listed   int64 `json:"listed"`
	Planned  int64 `json:"planned"`
	Pending  int64 `json:"pending"`
	Leased   int64 `json:"leased"`
	Settled  int64 `json:"settled"`
	Acked    int64 `json:"acked"`
	Excluded int64 `json:"excluded"`
	Dropped  int64 `json:"dropped"`
}

func countsOf(c *headracev1.Counts) countsView {
	return countsView{
		Listed: c.GetListed(), Planned: c.GetPlanned(), Pending: c.GetPending(), Leased: c.GetLeased(),
		Settled: c.GetSettled(), Acked: c.GetAcked(), Excluded: c.GetExcluded(), Dropped: c.GetDropped(),
	}
}

// retentionView is how far the oldest record that is still needed is from where its
// broker deletes; of a dataset, in the partition that is nearest.
type retentionView struct {
	Partition string  `json:"partition"` // its identity
	Label     string  `json:"label"`     // what people call it
	Records   int64   `json:"records"`
	Seconds   float64 `json:"seconds"` // 0 with never
	Never     bool    `json:"never"`
	By        string  `json:"by"` // age | size | movement
	Warn      bool    `json:"warn"`
	Blind     string  `json:"blind"` // why less is known than could be
}

func retentionOf(r *headracev1.Retention) *retentionView {
	if r == nil {
		return nil
	}
	return &retentionView{Partition: r.Identity, Label: r.Label, Records: r.Records, Seconds: r.Seconds, Never: r.Never, By: r.By, Warn: r.Warn, Blind: r.Blind}
}

// text is the time, and an ! where it is too short.
func (r *retentionView) text() string {
	switch {
	case r == nil:
		return "-"
	case r.Never && r.Blind != "":
		return "?"
	case r.Never:
		return "always"
	case r.Warn:
		return rough(r.Seconds) + " !"
	}
	return rough(r.Seconds)
}

// sentence is what describe says.
func (r *retentionView) sentence(unit string) string {
	why := ""
	if r.Blind != "" {
		why = " (" + r.Blind + ")"
	}
	if r.Never {
		return fmt.Sprintf("%s before the oldest needed record, and nothing is known to delete it%s", terminal.Amount(r.Records, unit), why)
	}
	return fmt.Sprintf("the oldest needed record for %s at least, by %s; %s before it%s; nearest in %s", r.text(), r.By, terminal.Amount(r.Records, unit), why, r.Label)
}

// rough is a time in two units at most.
func rough(seconds float64) string {
	d := time.Duration(min(seconds, 1e9) * float64(time.Second))
	switch day := 24 * time.Hour; {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return d.Round(100 * time.Millisecond).String()
}

type datasetView struct {
	Name            string     `json:"name"`
	State           string     `json:"state"`
	Reason          string     `json:"reason"`
	Unit            string     `json:"unit"`
	Passes          uint32     `json:"passes"`
	Pass            uint32     `json:"pass"`
	Partitions      uint32     `json:"partitions"`
	ListingComplete bool       `json:"listing_complete"`
	Counts          countsView `json:"counts"`

	Records   *recordsView   `json:"records"`   // in counts.acked
	Retention *retentionView `json:"retention"` // null: not guarded, or nothing is needed any more
}

func datasetOf(d *headracev1.Dataset) datasetView {
	return datasetView{
		Name: d.Name, State: d.State, Reason: d.Reason, Unit: d.Unit, Passes: d.Passes, Pass: d.Pass,
		Partitions: d.Partitions, ListingComplete: d.ListingComplete, Counts: countsOf(d.Counts),
		Records: recordsOfTally(d.Records), Retention: retentionOf(d.Retention),
	}
}

// progress is the settled part of all passes, when the whole is known.
func (d *datasetView) progress() string {
	if d.State == "done" {
		return "100.0%"
	}
	p := terminal.Percent(d.Counts.Settled, d.Counts.Listed)
	if !d.ListingComplete && p != "-" {
		p += " of what is listed so far"
	}
	return p
}

func (d *datasetView) passText() string {
	return fmt.Sprintf("%d/%d", min(d.Pass+1, max(d.Passes, 1)), max(d.Passes, 1))
}

type describeView struct {
	datasetView
	Spec json.RawMessage `json:"spec"`
	YAML string          `json:"yaml"`

	Excluded       []excludedView `json:"excluded"`        // the first 100
	ExcludedRanges uint64         `json:"excluded_ranges"` // all
}

func describeOf(d *headracev1.Dataset) describeView {
	v := describeView{datasetView: datasetOf(d), Spec: json.RawMessage(d.SpecJson), YAML: d.Yaml}
	if !json.Valid(v.Spec) {
		v.Spec = json.RawMessage("null")
	}
	return v
}

type distancesView struct {
	Committed int64 `json:"committed"`
	Bound     int64 `json:"bound"`
	Acked     int64 `json:"acked"`
	Leased    int64 `json:"leased"`
	Planned   int64 `json:"planned"`
	Head      int64 `json:"head"`
	Estimated bool  `json:"estimated"`
}

type leaseView struct {
	Token      string  `json:"token"` // epoch.term.sequence
	Agent      string  `json:"agent"`
	Rank       uint32  `json:"rank"`
	Segment    int64   `json:"segment"`
	Start      int64   `json:"start"`
	Prefix     int64   `json:"prefix"`
	End        int64   `json:"end"`
	AgeSeconds float64 `json:"age_seconds"`
}

type partitionView struct {
	Number    uint32        `json:"number"`
	Identity  string        `json:"identity"`
	Label     string        `json:"label"` // what people call it
	Pass      uint32        `json:"pass"`
	Distances distancesView `json:"distances"`
	Counts    countsView    `json:"counts"`
	Leases    uint32        `json:"leases"`
	Lease     []leaseView   `json:"lease"`

	Retention *retentionView `json:"retention"`
}

func partitionOf(p *headracev1.PartitionState) partitionView {
	d := p.GetDistances()
	v := partitionView{
		Number: p.Number, Identity: p.Identity, Label: p.Label, Pass: p.Pass, Counts: countsOf(p.Counts), Leases: p.Leases,
		Distances: distancesView{
			Committed: d.GetCommitted(), Bound: d.GetBound(), Acked: d.GetAcked(), Leased: d.GetLeased(),
			Planned: d.GetPlanned(), Head: d.GetHead(), Estimated: d.GetEstimated(),
		},
		Lease: []leaseView{}, Retention: retentionOf(p.Retention),
	}
	for _, l := range p.Lease {
		v.Lease = append(v.Lease, leaseView{
			Token: fmt.Sprintf("%d.%d.%d", l.GetToken().GetEpoch(), l.GetToken().GetTerm(), l.GetToken().GetSequence()),
			Agent: l.Agent, Rank: l.Rank, Segment: l.Segment, Start: l.Start, Prefix: l.Prefix, End: l.End, AgeSeconds: l.AgeSeconds,
		})
	}
	return v
}

type agentView struct {
	Name             string   `json:"name"`
	Host             string   `json:"host"`
	PID              int32    `json:"pid"`
	Session          string   `json:"session"`
	LastHeardSeconds float64  `json:"last_heard_seconds"`
	GPUs             []string `json:"gpus"`
	Version          string   `json:"version"`
	Workers          uint32   `json:"workers"`
}

type workerView struct {
	Rank        uint32  `json:"rank"`
	Incarnation string  `json:"incarnation"`
	Agent       string  `json:"agent"`
	PID         int32   `json:"pid"`
	State       string  `json:"state"`
	Rate        float64 `json:"rate"`
	UnitsAcked  uint64  `json:"units_acked"`
	Step        int64   `json:"step"`
	Leases      uint32  `json:"leases"`
	WaitSeconds float64 `json:"wait_seconds"`
	StepSeconds float64 `json:"step_seconds"`
	RowsYielded uint64  `json:"rows_yielded"`
}

// checkpointView is the newest bound one; for private that of the rank whose
// newest is the oldest.
type checkpointView struct {
	Cut        string  `json:"cut"`
	Step       int64   `json:"step"`
	Rank       *uint32 `json:"rank"` // private only
	Epoch      uint32  `json:"epoch"`
	Path       string  `json:"path"`
	AgeSeconds float64 `json:"age_seconds"` // since it was bound, as far as is known
	Kept       uint32  `json:"kept"`        // bound and carried ones in all
}

type jobView struct {
	Job              string          `json:"job"`
	Model            string          `json:"model"`
	State            string          `json:"state"`
	Version          string          `json:"version"`
	Term             uint32          `json:"term"`
	Epoch            uint32          `json:"epoch"`
	Generation       uint32          `json:"generation"`
	UptimeSeconds    float64         `json:"uptime_seconds"`
	HTTP             string          `json:"http"`
	GrantsTotal      uint64          `json:"grants_total"`
	AcksTotal        uint64          `json:"acks_total"`
	AcksRefusedTotal uint64          `json:"acks_refused_total"`
	ReclaimsTotal    uint64          `json:"reclaims_total"`
	StealsTotal      uint64          `json:"steals_total"`
	Agents           []agentView     `json:"agents"`
	Workers          []workerView    `json:"workers"`
	Datasets         []datasetView   `json:"datasets"`
	Checkpoint       *checkpointView `json:"checkpoint"` // null: none is bound
}

func jobOf(j *headracev1.JobReply) jobView {
	v := jobView{
		Job: j.Job, Model: j.Model, State: j.State, Version: j.Version, Term: j.Term, Epoch: j.Epoch, Generation: j.Generation,
		UptimeSeconds: j.UptimeSeconds, HTTP: j.Http, GrantsTotal: j.GrantsTotal, AcksTotal: j.AcksTotal,
		AcksRefusedTotal: j.AcksRefusedTotal, ReclaimsTotal: j.ReclaimsTotal, StealsTotal: j.StealsTotal,
		Agents: []agentView{}, Workers: []workerView{}, Datasets: []datasetView{},
	}
	for _, g := range j.Agents {
		gpus := g.Gpus
		if gpus == nil {
			gpus = []string{}
		}
		v.Agents = append(v.Agents, agentView{g.Name, g.Host, g.Pid, g.Session, g.LastHeardSeconds, gpus, g.Version, g.Workers})
	}
	for _, w := range j.Workers {
		v.Workers = append(v.Workers, workerView{
			Rank: w.Rank, Incarnation: fmt.Sprintf("%016x", w.Incarnation), Agent: w.Agent, PID: w.Pid, State: w.State, Rate: w.Rate,
			UnitsAcked: w.UnitsAcked, Step: w.Step, Leases: w.Leases, WaitSeconds: w.WaitSeconds, StepSeconds: w.StepSeconds,
			RowsYielded: w.RowsYielded,
		})
	}
	for _, d := range j.Datasets {
		v.Datasets = append(v.Datasets, datasetOf(d))
	}
	if c := j.Checkpoint; c != nil {
		v.Checkpoint = &checkpointView{Cut: manifest.CutID(c.Cut).String(), Step: c.Step, Epoch: c.Epoch, Path: c.Path, AgeSeconds: c.AgeSeconds, Kept: c.Kept}
		if c.Rank >= 0 {
			rank := uint32(c.Rank)
			v.Checkpoint.Rank = &rank
		}
	}
	return v
}
