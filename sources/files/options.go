package files

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/parquet"
	"github.com/headrace/headrace/sources"
)

// FramingKind says how a file is cut into records.
type FramingKind uint8

const (
	Lines     FramingKind = iota + 1 // one record a line, ended by \n or \r\n
	Quoted                           // CSV records; a quoted field may hold line ends
	Whole                            // the whole file is one record that begins at offset 0
	Fixed                            // records of Size bytes, one after the other
	TFRecord                         // records with a length and checksums
	Table                            // Parquet: rows of columns; offsets are rows
	Container                        // Avro files: blocks of records; offsets are rows
	Delimited                        // Protobuf messages, each after its length
)

// rows: offsets are rows of the file.
func (k FramingKind) rows() bool { return k == Table || k == Container }

// indexed: a record's start is known only by reading the file from its beginning. Listing
// does that, and notes starts in the locators.
func (k FramingKind) indexed() bool { return k == Quoted || k == TFRecord || k == Delimited }

// measured: each record begins with its length.
func (f *Framing) measured() bool { return f.Kind == TFRecord || f.Kind == Delimited }

// Framing says where records end. It is made from the decode part of a spec.
type Framing struct {
	Kind      FramingKind
	Delimiter byte // Quoted only
	Quote     byte // Quoted only
	Size      int  // Fixed only
	Header    bool // the first line that is not empty names the fields and is no record
	// EmptyLines: an empty line is a record too. Otherwise it is a position without a record,
	// and is acked with the record before it.
	EmptyLines bool
	// Text: a byte order mark at the beginning is skipped.
	Text bool
	// Paths are the fields that are read. Table only.
	Paths []parquet.Path
}

// framingOf: csv, tsv and json skip empty lines, lines keeps them; binary has no
// lines.
func framingOf(d dataset.DecodeSpec) (Framing, error) {
	switch d.Format {
	case "csv", "tsv":
		f := Framing{Kind: Lines, Header: d.Header, Text: true}
		if d.Quote == dataset.NoQuote {
			return f, nil
		}
		if len(d.Delimiter) != 1 || len(d.Quote) != 1 {
			return Framing{}, fmt.Errorf("delimiter %q and quote %q must be one byte each", d.Delimiter, d.Quote)
		}
		f.Kind, f.Delimiter, f.Quote = Quoted, d.Delimiter[0], d.Quote[0]
		return f, nil
	case "json":
		return Framing{Kind: Lines, Text: true}, nil
	case "lines":
		return Framing{Kind: Lines, EmptyLines: true}, nil
	case "raw":
		return Framing{Kind: Whole}, nil
	case "binary":
		if d.RecordSize < 1 {
			return Framing{}, fmt.Errorf("format binary has no record_size")
		}
		return Framing{Kind: Fixed, Size: int(d.RecordSize), EmptyLines: true}, nil
	}
	if d.Format == "tfrecord" {
		return Framing{Kind: TFRecord, EmptyLines: true}, nil
	}
	if d.Format == "protobuf" {
		return Framing{Kind: Delimited, EmptyLines: true}, nil
	}
	if d.Format == "avro" {
		return Framing{Kind: Container, EmptyLines: true}, nil
	}
	if d.Format == "parquet" {
		paths, err := tablePaths(d)
		return Framing{Kind: Table, EmptyLines: true, Paths: paths}, err
	}
	return Framing{}, fmt.Errorf("format %q says nothing about where records end", d.Format)
}

// Options opens a dataset. Objects, Known, Cache and Logger may be missing.
type Options struct {
	Dataset string
	Spec    *Spec
	Framing Framing
	// Objects opens object storage, for a Root of s3://; nil: there is none.
	Objects dataset.ObjectsOpener
	// AllowedRoots: Spec.Root must be one of these folders or lie in one.
	AllowedRoots []string
	// Known: segments that were numbered before, which keep their numbers.
	// Readers need none.
	Known []sources.Segment
	// Cache is a folder for what can be made again: restart points of compressed files.
	// "": they are kept in memory.
	Cache  string
	Logger *slog.Logger
}

func (o *Options) check() error {
	switch {
	case o.Dataset == "":
		return errors.New("files: no dataset's name")
	case o.Spec == nil:
		return fmt.Errorf("dataset %s: no files in its spec", o.Dataset)
	case o.Framing.Kind < Lines || o.Framing.Kind > Delimited, o.Framing.Kind == Fixed && o.Framing.Size < 1:
		return fmt.Errorf("dataset %s: no framing", o.Dataset)
	case o.Spec.MaxRecord < 1 || o.Spec.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: files.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.Spec.MaxRecord)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// openSpec opens the files of a dataset's spec.
func openSpec(spec *dataset.Spec, in dataset.Opening) (sources.Source, error) {
	f, ok := spec.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: no files in its spec", spec.Name)
	}
	framing, err := framingOf(spec.Decode)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", spec.Name, err)
	}
	src, err := Open(Options{Dataset: spec.Name, Spec: f, Framing: framing,
		AllowedRoots: in.AllowedRoots, Objects: in.Objects, Known: in.Known, Cache: in.Cache, Logger: in.Logger})
	if err != nil {
		return nil, err // not a nil *Source that looks like a source
	}
	return src, nil
}
