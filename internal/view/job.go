package view

import (
	"fmt"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/cut"
)

type Agent struct {
	Name             string   `json:"name"`
	Host             string   `json:"host"`
	PID              int32    `json:"pid"`
	Session          string   `json:"session"`
	LastHeardSeconds float64  `json:"last_heard_seconds"`
	GPUs             []string `json:"gpus"`
	Version          string   `json:"version"`
	Workers          uint32   `json:"workers"`
}

type Worker struct {
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

// Checkpoint is the newest bound one, or the newest in memory; for private that of the
// rank whose newest is the oldest.
type Checkpoint struct {
	Cut        string  `json:"cut"`
	Step       int64   `json:"step"`
	Rank       *uint32 `json:"rank"` // private only
	Epoch      uint32  `json:"epoch"`
	Path       string  `json:"path"`
	AgeSeconds float64 `json:"age_seconds"` // since it was bound, or frozen for memory, as far as is known
	Kept       uint32  `json:"kept"`        // bound and carried ones in all, or those in memory
}

type Job struct {
	Job              string      `json:"job"`
	Model            string      `json:"model"`
	State            string      `json:"state"`
	Version          string      `json:"version"`
	Term             uint32      `json:"term"`
	Epoch            uint32      `json:"epoch"`
	Generation       uint32      `json:"generation"`
	UptimeSeconds    float64     `json:"uptime_seconds"`
	HTTP             string      `json:"http"`
	GrantsTotal      uint64      `json:"grants_total"`
	AcksTotal        uint64      `json:"acks_total"`
	AcksRefusedTotal uint64      `json:"acks_refused_total"`
	ReclaimsTotal    uint64      `json:"reclaims_total"`
	StealsTotal      uint64      `json:"steals_total"`
	Agents           []Agent     `json:"agents"`
	Workers          []Worker    `json:"workers"`
	Datasets         []Dataset   `json:"datasets"`
	Checkpoint       *Checkpoint `json:"checkpoint"` // null: none is bound
	InMemory         *Checkpoint `json:"in_memory"`  // newer than that, and in memory only; null: none

	TLS bool `json:"-"` // the master's pages are https
}

func JobOf(j *headracev1.JobReply) Job {
	v := Job{
		Job: j.Job, Model: j.Model, State: j.State, Version: j.Version, Term: j.Term, Epoch: j.Epoch, Generation: j.Generation,
		UptimeSeconds: j.UptimeSeconds, HTTP: j.Http, GrantsTotal: j.GrantsTotal, AcksTotal: j.AcksTotal,
		AcksRefusedTotal: j.AcksRefusedTotal, ReclaimsTotal: j.ReclaimsTotal, StealsTotal: j.StealsTotal,
		Agents: []Agent{}, Workers: []Worker{}, Datasets: []Dataset{},
	}
	for _, g := range j.Agents {
		gpus := g.Gpus
		if gpus == nil {
			gpus = []string{}
		}
		v.Agents = append(v.Agents, Agent{g.Name, g.Host, g.Pid, g.Session, g.LastHeardSeconds, gpus, g.Version, g.Workers})
	}
	for _, w := range j.Workers {
		v.Workers = append(v.Workers, Worker{
			Rank: w.Rank, Incarnation: fmt.Sprintf("%016x", w.Incarnation), Agent: w.Agent, PID: w.Pid, State: w.State, Rate: w.Rate,
			UnitsAcked: w.UnitsAcked, Step: w.Step, Leases: w.Leases, WaitSeconds: w.WaitSeconds, StepSeconds: w.StepSeconds,
			RowsYielded: w.RowsYielded,
		})
	}
	for _, d := range j.Datasets {
		v.Datasets = append(v.Datasets, DatasetOf(d))
	}
	v.Checkpoint, v.InMemory = checkpointOf(j.Checkpoint), checkpointOf(j.InMemory)
	return v
}

func checkpointOf(c *headracev1.NewestCheckpoint) *Checkpoint {
	if c == nil {
		return nil
	}
	v := &Checkpoint{Cut: cut.ID(c.Cut).String(), Step: c.Step, Epoch: c.Epoch, Path: c.Path, AgeSeconds: c.AgeSeconds, Kept: c.Kept}
	if c.Rank >= 0 {
		rank := uint32(c.Rank)
		v.Rank = &rank
	}
	return v
}
