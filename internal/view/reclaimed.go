package view

import (
	"fmt"
	"io"
	"strings"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// Reclaimed is what taking back the rows of a process did, or would do.
type Reclaimed struct {
	Rank      uint32   `json:"rank"`
	Agent     string   `json:"agent"`
	Pid       int32    `json:"pid"`
	Reclaimed bool     `json:"reclaimed"` // false: a dry run
	Leases    uint32   `json:"leases"`
	Step      int64    `json:"step"`       // that the process has reported
	Kept      *int64   `json:"checkpoint"` // step of the newest checkpoint; null: there is none
	Fenced    []uint32 `json:"fenced"`     // ranks that have to start again
	process   uint64
}

// ReclaimedOf is the view of a master's reply.
func ReclaimedOf(reply *headracev1.ReclaimReply, rank uint32, done bool) *Reclaimed {
	v := &Reclaimed{Rank: rank, Agent: reply.Agent, Pid: reply.Pid, Reclaimed: done, Leases: reply.Leases, Step: reply.Step,
		Fenced: append([]uint32{}, reply.Fenced...), process: reply.Incarnation}
	if reply.Kept >= 0 {
		v.Kept = &reply.Kept
	}
	return v
}

// Process is the incarnation of the process.
func (v *Reclaimed) Process() uint64 { return v.process }

// Write shows it to a person.
func (v *Reclaimed) Write(w io.Writer) {
	verb := "would be"
	if v.Reclaimed {
		verb = "are"
	}
	fmt.Fprintf(w, "rank %d (process %d, agent %s): the rows of %d leases %s taken back\n", v.Rank, v.Pid, v.Agent, v.Leases, verb)
	switch {
	case v.Kept == nil && v.Step > 0:
		fmt.Fprintf(w, "it has no checkpoint: all records of its %d steps come again\n", v.Step)
	case v.Kept != nil && v.Step > *v.Kept:
		fmt.Fprintf(w, "its newest checkpoint is step %d: the records of steps %d to %d come again\n", *v.Kept, *v.Kept+1, v.Step)
	default:
		fmt.Fprintln(w, "no record of its model comes again")
	}
	var ranks []string
	for _, rank := range v.Fenced {
		ranks = append(ranks, fmt.Sprint(rank))
	}
	fmt.Fprintf(w, "ranks that have to restore: %s\n", strings.Join(ranks, ", "))
}
