package view

import (
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// Imbalance says that a rank waits for rows while another one holds some, and nobody makes
// progress.
type Imbalance struct {
	Idle    uint32  `json:"idle"` // rank
	Busy    uint32  `json:"busy"` // rank
	Leases  uint32  `json:"leases"`
	Seconds float64 `json:"seconds"` // since the last progress
}

func imbalanceOf(i *headracev1.Imbalance) *Imbalance {
	if i == nil {
		return nil
	}
	return &Imbalance{Idle: i.Idle, Busy: i.Busy, Leases: i.Leases, Seconds: i.Seconds}
}

func (i *Imbalance) sentence() string {
	return fmt.Sprintf("rank %d waits for rows while rank %d has %d leases, and nobody has made progress for %s. "+
		"If they train in step, they need rounds: a master with --model replicated, and no rounds=False in the program", i.Idle, i.Busy, i.Leases,
		time.Duration(i.Seconds*float64(time.Second)).Round(time.Second))
}
