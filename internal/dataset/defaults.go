package dataset

import "time"

// Defaults of everything a spec may leave out. Sizes are bytes, which is the
// unit of files.
const (
	defaultPasses    = 1
	defaultOrder     = "any"
	defaultVerify    = "fast"
	defaultMaxRecord = Size(16 << 20)
	defaultOnError   = "fail"
	defaultBlock     = Size(256 << 10)
	defaultTarget    = Duration(2 * time.Second)
	defaultInitial   = Size(256 << 10)
	defaultMin       = Size(16 << 10)
	defaultMax       = Size(1 << 30)
	defaultStall     = Duration(10 * time.Minute)
	defaultOnLoss    = "stop"
	defaultWarn      = Duration(time.Hour)
	defaultEvery     = Duration(10 * time.Second)

	// Of brokers, whose unit is records.
	defaultStart        = "earliest"
	defaultEnd          = "latest"
	defaultBlockRecords = Size(4096)
	defaultInitRecords  = Size(10_000)
	defaultLeastRecords = Size(100)
	defaultMostRecords  = Size(10_000_000)

	// Of input without an end. A lease that ends ahead of head holds nothing up: it
	// may be long, but not for hours.
	endNever        = "never"
	defaultMostLive = Size(1_000_000)
	defaultRefresh  = Duration(5 * time.Second)
	leastRefresh    = Duration(100 * time.Millisecond)

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

func defaultKafka() KafkaSpec {
	return KafkaSpec{Start: defaultStart, End: defaultEnd, MaxRecord: defaultMaxRecord}
}

func defaultFiles() FilesSpec {
	return FilesSpec{Verify: defaultVerify, MaxRecord: defaultMaxRecord}
}

// fillSizes sets the defaults that depend on the source's unit.
func (s *Spec) fillSizes() {
	block, initial, least, most := defaultBlock, defaultInitial, defaultMin, defaultMax
	if s.Kafka != nil {
		block, initial, least, most = defaultBlockRecords, defaultInitRecords, defaultLeastRecords, defaultMostRecords
	}
	if s.Live() {
		most = defaultMostLive
		if s.Kafka.Refresh == 0 {
			s.Kafka.Refresh = defaultRefresh
		}
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
	if s.Files != nil && len(s.Files.Paths) == 0 {
		s.Files.Paths = []string{"."}
	}
	d := &s.Decode
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
