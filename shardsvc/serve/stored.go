package serve

import (
	"encoding/json"
	"fmt"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
)

// stored is a dataset's spec as the core keeps it: the text as people wrote it, and the
// parsed spec as JSON.
type stored struct {
	yaml string
	json []byte
	spec *dataset.Spec
}

// envelope is the durable form of stored.
type envelope struct {
	YAML string          `json:"yaml"`
	Spec json.RawMessage `json:"spec"`
}

func newStored(yaml string, spec *dataset.Spec) (stored, error) {
	text, err := spec.JSON()
	return stored{yaml: yaml, json: text, spec: spec}, err
}

func (s stored) encode() ([]byte, error) {
	return json.Marshal(envelope{YAML: s.yaml, Spec: s.json})
}

func decodeStored(b []byte) (stored, error) {
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return stored{}, fmt.Errorf("stored spec: %w", err)
	}
	spec, err := dataset.FromJSON(e.Spec)
	return stored{yaml: e.YAML, json: e.Spec, spec: spec}, err
}

// options returns the part of a spec that the core uses.
func options(spec *dataset.Spec) shardsvc.Options {
	o := shardsvc.Options{
		Passes:  spec.Passes,
		Strict:  spec.Order == "strict",
		Initial: int64(spec.Lease.Initial),
		Min:     int64(spec.Lease.Min),
		Max:     int64(spec.Lease.Max),
		Target:  shardsvc.Time(spec.Lease.Target),
		Stall:   shardsvc.Time(spec.Lease.Stall),
		Unit:    spec.Kind().Unit,

		GoOnAfterLoss: spec.OnLoss == "continue",
		Pushed:        spec.Kind().Pushed,
		Resume:        resumeWords[spec.Resume],
	}
	o.Isolate = spec.Isolates()
	if spec.LeavesOut() {
		limit := spec.BadLimit()
		o.MaxBad, o.MaxBadShare = limit.Records, limit.PerMillion
	}
	if b := spec.Backfill; b != nil {
		old := spec.Inputs()[0]
		o.Backfill = shardsvc.Backfill{Kind: old.Kind().Name, Unit: old.Kind().Unit, NewestFirst: spec.CatchUp.Order == dataset.CatchUpNewestFirst,
			Initial: int64(old.Lease.Initial), Min: int64(old.Lease.Min), Max: int64(old.Lease.Max)}
	}
	o.DropOld = spec.CatchUp.DropOlderThan > 0
	if sh := spec.Shuffle; sh != nil {
		o.Shuffle, o.Seed, o.Block = true, sh.Seed, int64(sh.Block)
	}
	if x := spec.BitExact; x != nil {
		o.VirtualRanks, o.Strict = uint32(x.VirtualRanks), true
		if !o.Shuffle {
			o.Shuffle, o.InOrder, o.Block = true, true, int64(x.Block)
		}
	}
	return o
}

var resumeWords = map[string]shardsvc.Resume{"bound": shardsvc.ResumeBound, "acked": shardsvc.ResumeAcked, "start": shardsvc.ResumeStart}
