package dataset

import "time"

// Defaults of the optional fields outside the source's part. The default sizes of leases and
// blocks belong to the kind of source (sources.Sizes).
const (
	defaultPasses  = 1
	defaultOrder   = "any"
	defaultOnError = "fail"
	defaultTarget  = Duration(2 * time.Second)
	defaultStall   = Duration(10 * time.Minute)
	defaultOnLoss  = "stop"
	defaultWarn    = Duration(time.Hour)
	defaultEvery   = Duration(10 * time.Second)

	unset Size = -1 // what no text can say: the source's default
)

// defaultSpec is what a written spec is laid over; nothing in it depends on
// what is written.
func defaultSpec() *Spec {
	return &Spec{
		Passes: defaultPasses,
		Order:  defaultOrder,
		OnLoss: defaultOnLoss,
		Guard:  GuardSpec{Warn: defaultWarn, Every: defaultEvery},
		Decode: DecodeSpec{OnError: defaultOnError},
		Lease:  LeaseSpec{Target: defaultTarget, Initial: unset, Min: unset, Max: unset, Stall: defaultStall},
	}
}

// fillSizes sets the defaults that depend on the source's unit.
func (s *Spec) fillSizes() {
	if s.Source == nil {
		return // the missing source is reported, and nothing else
	}
	d := s.Kind().Sizes
	block, initial, least, most := Size(d.Block), Size(d.Initial), Size(d.Min), Size(d.Max)
	if s.Live() && d.MaxWhileLive > 0 {
		most = Size(d.MaxWhileLive)
	}
	for _, f := range []struct {
		field *Size
		value Size
	}{{&s.Lease.Initial, initial}, {&s.Lease.Min, least}, {&s.Lease.Max, most}} {
		if *f.field == unset {
			*f.field = f.value
		}
	}
	if s.Shuffle != nil && s.Shuffle.Block == unset {
		s.Shuffle.Block = block
	}
	if x := s.BitExact; x != nil && x.Block == unset {
		x.Block = block
		if s.Shuffle != nil {
			x.Block = s.Shuffle.Block
		}
	}
}

// fill sets the defaults that depend on the source and the format.
func (s *Spec) fill() {
	s.fillSizes()
	if s.Source != nil {
		s.Source.Fill()
	}
	if s.LeavesOut() {
		s.MaxBad = orElse(s.MaxBad, defaultMaxBad)
	}
	s.Decode.fill()
	if s.Backfill != nil {
		s.Backfill.fill(s)
		s.CatchUp.Order = orElse(s.CatchUp.Order, CatchUpInOrder)
	}
}

func (d *DecodeSpec) fill() {
	switch d.Format {
	case "csv":
		d.Delimiter, d.Quote = orElse(d.Delimiter, ","), orElse(d.Quote, `"`)
	case "tsv":
		d.Delimiter, d.Quote = orElse(d.Delimiter, "\t"), orElse(d.Quote, NoQuote)
	case "binary":
		d.fillBinary()
	case "lines", "raw":
		if len(d.Columns) == 0 {
			d.Columns = []Column{{Name: "value", Path: "$value", DType: "bytes"}}
		}
	}
	if d.Delimiter == `\t` || d.Delimiter == "tab" { // '\t' in single quotes is two characters in YAML
		d.Delimiter = "\t"
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
