package dataset

import "time"

// Spec is one dataset as applied, defaults filled in.
type Spec struct {
	Name     string     `json:"name" yaml:"name"`
	Source   Part       `json:"-"` // written and stored after the name, under the name of its kind
	Decode   DecodeSpec `json:"decode" yaml:"decode"`
	Passes   int        `json:"passes" yaml:"passes"` // default 1
	Order    string     `json:"order" yaml:"order"`   // any (default) | strict
	Shuffle  *Shuffle   `json:"shuffle,omitempty" yaml:"shuffle"`
	BitExact *BitExact  `json:"bit_exact,omitempty" yaml:"bit_exact"`
	Lease    LeaseSpec  `json:"lease" yaml:"lease"`
	OnLoss   string     `json:"on_loss" yaml:"on_loss"` // stop (default) | continue: what the source has lost is excluded
	Guard    GuardSpec  `json:"guard" yaml:"guard"`
	OnCrash  string     `json:"on_crash,omitempty" yaml:"on_crash"` // "" (default): hand out again | isolate: exclude a record that ends its trainer twice
	// MaxBad and DeadLetter go with decode.on_error: skip and on_crash: isolate.
	MaxBad     string      `json:"max_bad,omitempty" yaml:"max_bad"` // "1000" (default) | "0.1%": when to stop
	DeadLetter *DeadLetter `json:"dead_letter,omitempty" yaml:"dead_letter"`
	// Backfill is read beside a live source. CatchUp says which of them first, and what is too
	// old.
	Backfill *Backfill `json:"backfill,omitempty" yaml:"backfill"`
	CatchUp  CatchUp   `json:"catch_up,omitzero" yaml:"catch_up"`
	Resume   string    `json:"resume,omitempty" yaml:"resume"` // bound | acked | start: for processes that do not choose; "": the default of the model kind
}

// GuardSpec: when to warn that a broker will delete what is not read yet.
type GuardSpec struct {
	Warn  Duration `json:"warn" yaml:"warn"`   // default 1h, or half of what the broker keeps, if that is less
	Every Duration `json:"every" yaml:"every"` // how often it is looked at; default 10s
}

// Live: the input has no end.
func (s *Spec) Live() bool { return s.Source != nil && s.Source.Traits().Live }

// DecodeSpec says how bytes become columns.
type DecodeSpec struct {
	Format    string   `json:"format" yaml:"format"`                 // csv | tsv | json | lines | raw | binary | parquet | tfrecord | avro | protobuf
	Header    bool     `json:"header,omitempty" yaml:"header"`       // csv, tsv: each file's first line names the fields (and is no record)
	Fields    []string `json:"fields,omitempty" yaml:"fields"`       // csv, tsv: names without a header line
	Delimiter string   `json:"delimiter,omitempty" yaml:"delimiter"` // one byte; default , or tab
	Quote     string   `json:"quote,omitempty" yaml:"quote"`         // one byte or "none"; default " for csv, none for tsv
	// RecordSize: binary: bytes of every record; default: the end of the column that ends last.
	RecordSize Size `json:"record_size,omitempty" yaml:"record_size"`
	// avro, protobuf: where the schemas of the records are.
	Registry  *Registry     `json:"registry,omitempty" yaml:"registry"`
	Schema    *WriterSchema `json:"schema,omitempty" yaml:"schema"`
	Message   string        `json:"message,omitempty" yaml:"message"` // protobuf with Schema: its full name; default: the file's first
	Columns   []Column      `json:"columns" yaml:"columns"`
	EventTime string        `json:"event_time,omitempty" yaml:"event_time"` // a path; integer ms or s, or RFC 3339
	OnError   string        `json:"on_error" yaml:"on_error"`               // fail (default) | default | skip
}

// Columnar: records are rows of columns and not bytes; offsets count rows.
func (d *DecodeSpec) Columnar() bool { return d.Format == "parquet" }

// CountsRows: in files of the format, offsets count rows.
func (d *DecodeSpec) CountsRows() bool { return d.Columnar() || d.Format == "avro" }

// Fielded: a path is a name, or a JSON Pointer for what lies deeper.
func Fielded(format string) bool {
	return format == "parquet" || format == "tfrecord" || Written(format)
}

// Shaped reports whether columns with a path may have a shape.
func (d *DecodeSpec) Shaped() bool {
	return d.Features() || d.Format == "parquet" || d.Format == "json" || Written(d.Format)
}

// Features: records are tf.Example or tf.SequenceExample.
func (d *DecodeSpec) Features() bool { return d.Format == "tfrecord" }

// Column makes one column. Exactly one of Path, Paths and, in format binary,
// Offset is set.
type Column struct {
	Name string `json:"name" yaml:"name"`
	// Path: a field's number (from 0) or name for csv and tsv. A JSON Pointer
	// ("/user/id", "/items/*/price") for json. A field's name or a JSON Pointer for
	// the other formats with fields (Fielded). For any format: $key, $value,
	// $header.NAME, $path.NAME (the folder NAME=... of the file), $timestamp or $tombstone.
	Path    string   `json:"path,omitempty" yaml:"path"`
	Paths   []string `json:"paths,omitempty" yaml:"paths"`     // several into one matrix column; "1..13" is a run of numbers
	Offset  *int     `json:"offset,omitempty" yaml:"offset"`   // binary, where no path is set: byte in the record; default: after the column before it
	Shape   []int    `json:"shape,omitempty" yaml:"shape"`     // elements that follow each other, row-major: of binary, of a feature, of a list; binary: of bytes, how many
	DType   string   `json:"dtype" yaml:"dtype"`               // bool int32 int64 float32 float64 string bytes
	Default *string  `json:"default,omitempty" yaml:"default"` // as text, parsed by dtype (of a hashed column: the number itself, it is not hashed); used where the value is missing (and on errors with on_error: default)
	Missing string   `json:"missing,omitempty" yaml:"missing"` // "" | mask
	Hash    *Hash    `json:"hash,omitempty" yaml:"hash"`       // strings to int64
	Split   string   `json:"split,omitempty" yaml:"split"`     // multi-value separator, one byte: the column is ragged
	Weights string   `json:"weights,omitempty" yaml:"weights"` // one byte inside a value: "id:0.5"; adds the ragged float32 column <name>_weights
	Max     int      `json:"max,omitempty" yaml:"max"`         // values kept per row of a ragged column; 0 = all
}

type Hash struct {
	Buckets int64  `json:"buckets" yaml:"buckets"` // 0 keeps 64 bits
	Salt    string `json:"salt" yaml:"salt"`
}

// Shuffle: a seeded permutation of blocks (docs/PROTOCOL.md).
type Shuffle struct {
	Seed  uint64 `json:"seed" yaml:"seed"`
	Block Size   `json:"block" yaml:"block"` // units (bytes for files); default 256KiB
}

// BitExact: the same batches whatever the number of workers. Block i of the order belongs to
// virtual rank i mod VirtualRanks. Each virtual rank reads its own blocks in order.
type BitExact struct {
	VirtualRanks int  `json:"virtual_ranks" yaml:"virtual_ranks"`
	Block        Size `json:"block" yaml:"block"` // without shuffle; default 256KiB
}

// LeaseSpec: how much of the input a worker holds at a time. Sizes in units.
type LeaseSpec struct {
	Target  Duration `json:"target" yaml:"target"`   // default 2s of the worker's own rate
	Initial Size     `json:"initial" yaml:"initial"` // before a rate is known; default 256KiB for files
	Min     Size     `json:"min" yaml:"min"`         // default 16KiB for files
	Max     Size     `json:"max" yaml:"max"`         // default 1GiB for files
	Stall   Duration `json:"stall" yaml:"stall"`     // default 10m; ten times that before a worker's first step
}

// Size is written as a number or with KiB, MiB, GiB.
type Size int64

// Duration is written as Go writes it: 2s, 10m.
type Duration time.Duration
