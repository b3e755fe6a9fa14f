package view

import (
	"cmp"
	"fmt"
	"io"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/terminal"
)

type Distances struct {
	Committed int64 `json:"committed"`
	Bound     int64 `json:"bound"`
	Acked     int64 `json:"acked"`
	Leased    int64 `json:"leased"`
	Planned   int64 `json:"planned"`
	Head      int64 `json:"head"`
	Estimated bool  `json:"estimated"`
}

type Lease struct {
	Token      string  `json:"token"` // epoch.term.sequence
	Agent      string  `json:"agent"`
	Rank       uint32  `json:"rank"`
	Segment    int64   `json:"segment"`
	Start      int64   `json:"start"`
	Prefix     int64   `json:"prefix"`
	End        int64   `json:"end"`
	AgeSeconds float64 `json:"age_seconds"`
}

type Partition struct {
	Number    uint32    `json:"number"`
	Identity  string    `json:"identity"`
	Label     string    `json:"label"` // what people call it
	Unit      string    `json:"unit"`  // of counts and distances
	Pass      uint32    `json:"pass"`
	Distances Distances `json:"distances"`
	Counts    Counts    `json:"counts"`
	Leases    uint32    `json:"leases"`
	Lease     []Lease   `json:"lease"`

	Retention *Retention `json:"retention"`
}

func partitionOf(p *headracev1.PartitionState) Partition {
	d := p.GetDistances()
	v := Partition{
		Number: p.Number, Identity: p.Identity, Label: p.Label, Unit: p.Unit, Pass: p.Pass, Counts: CountsOf(p.Counts), Leases: p.Leases,
		Distances: Distances{
			Committed: d.GetCommitted(), Bound: d.GetBound(), Acked: d.GetAcked(), Leased: d.GetLeased(),
			Planned: d.GetPlanned(), Head: d.GetHead(), Estimated: d.GetEstimated(),
		},
		Lease: []Lease{}, Retention: retentionOf(p.Retention),
	}
	for _, l := range p.Lease {
		v.Lease = append(v.Lease, Lease{
			Token: fmt.Sprintf("%d.%d.%d", l.GetToken().GetEpoch(), l.GetToken().GetTerm(), l.GetToken().GetSequence()),
			Agent: l.Agent, Rank: l.Rank, Segment: l.Segment, Start: l.Start, Prefix: l.Prefix, End: l.End, AgeSeconds: l.AgeSeconds,
		})
	}
	return v
}

func partitionTable(parts []Partition, unit string) *terminal.Table {
	t := terminal.NewTable("PARTITION", "PASS>", "SETTLED>", "LEASED>", "PENDING>", "LEASES>", "ACKED TO HEAD>", "LEASED TO HEAD>", "PLANNED TO HEAD>", "KEPT FOR>")
	for _, p := range parts {
		mark, unit := "", cmp.Or(p.Unit, unit)
		if p.Distances.Estimated {
			mark = "~"
		}
		t.Row(p.Label, fmt.Sprint(p.Pass+1), terminal.Amount(p.Counts.Settled, unit), terminal.Amount(p.Counts.Leased, unit), terminal.Amount(p.Counts.Pending, unit),
			fmt.Sprint(p.Leases), mark+terminal.Amount(p.Distances.Acked, unit), mark+terminal.Amount(p.Distances.Leased, unit), mark+terminal.Amount(p.Distances.Planned, unit), p.Retention.text())
	}
	return t
}

// writeLeases prints the leases of all partitions, or nothing where there are none.
func writeLeases(w io.Writer, parts []Partition) {
	t := terminal.NewTable("LEASE", "PARTITION", "AGENT", "RANK>", "SEGMENT>", "START>", "ACKED>", "END>", "AGE>")
	for _, p := range parts {
		for _, l := range p.Lease {
			t.Row(l.Token, p.Label, l.Agent, fmt.Sprint(l.Rank), fmt.Sprint(l.Segment), fmt.Sprint(l.Start), fmt.Sprint(l.Prefix),
				fmt.Sprint(l.End), terminal.Ago(l.AgeSeconds))
		}
	}
	if !t.Empty() {
		fmt.Fprintln(w)
		t.Write(w)
	}
}
