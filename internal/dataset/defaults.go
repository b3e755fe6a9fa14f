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
)

// defaultSpec is what a written spec is laid over; nothing in it depends on
// what is written.
func defaultSpec() *Spec {
	return &Spec{
		Passes: defaultPasses,
		Order:  defaultOrder,
		Decode: DecodeSpec{OnError: defaultOnError},
		Lease: LeaseSpec{Target: defaultTarget, Initial: defaultInitial,
			Min: defaultMin, Max: defaultMax, Stall: defaultStall},
	}
}

func defaultFiles() FilesSpec {
	return FilesSpec{Verify: defaultVerify, MaxRecord: defaultMaxRecord}
}

// fill sets the defaults that depend on the format.
func (s *Spec) fill() {
	if s.Files != nil && len(s.Files.Paths) == 0 {
		s.Files.Paths = []string{"."}
	}
	d := &s.Decode
	switch d.Format {
	case "csv":
		d.Delimiter, d.Quote = orElse(d.Delimiter, ","), orElse(d.Quote, `"`)
	case "tsv":
		d.Delimiter, d.Quote = orElse(d.Delimiter, "\t"), orElse(d.Quote, NoQuote)
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
