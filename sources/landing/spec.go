package landing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Kind is what pushed records can do. Offsets are numbers of records.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "landing", Unit: sources.Records, Keyed: true, Pushed: true, Retains: true, Foretells: true,
		End: sources.End{Field: "end", Always: true}, Inexact: "its records come as they are pushed",
		Sizes: sources.Sizes{Block: 4096, Initial: 10_000, Min: 100, Max: 10_000_000, MaxWhileLive: 1_000_000},
	},
	Example: "landing: {}",
	New: func() dataset.Part {
		return &Spec{End: endNever, Partitions: 1, Chunk: 1 << 20, MaxRecord: 16 << 20, MaxBytes: 64 << 30,
			StageTTL: day, Remember: 7 * day, Retain: dataset.Duration(time.Hour)}
	},
	Open: openSpec,
}

const (
	endNever  = "never"
	endPushed = "pushed"
	day       = dataset.Duration(24 * time.Hour)

	maxPartitions = 1024
	maxChunk      = 16 << 20
	maxRecord     = 32 << 20
	refresh       = time.Minute // partitions are fixed: there is nothing to look for
)

// Spec says how pushed records are kept.
type Spec struct {
	Partitions int              `json:"partitions"`    // default 1; fixed for good
	Key        string           `json:"key,omitempty"` // JSON Pointer: records with the same key stay in order
	End        string           `json:"end"`           // never (default) | pushed: producers say when
	Chunk      dataset.Size     `json:"chunk"`         // of records before compression; default 1MiB
	MaxRecord  dataset.Size     `json:"max_record"`    // of a value; default 16MiB
	MaxBytes   dataset.Size     `json:"max_bytes"`     // of all chunks that are stored; default 64GiB
	StageTTL   dataset.Duration `json:"stage_ttl"`     // a transaction is committed within it; default 24h
	Remember   dataset.Duration `json:"remember"`      // a repeated commit is recognised within it; default 168h
	Retain     dataset.Duration `json:"retain"`        // how long a chunk stays at least; default 1h
}

func (s *Spec) Kind() sources.Kind { return Kind.Kind }

func (s *Spec) Traits() dataset.Traits {
	return dataset.Traits{Live: true, Refresh: refresh, MaxRecord: s.MaxRecord, AtSource: "all records that were pushed to it"}
}

// Landing is what the master needs to know.
func (s *Spec) Landing() dataset.Landing {
	return dataset.Landing{Partitions: s.Partitions, Key: s.Key, Ends: s.End == endPushed, ChunkBytes: int64(s.Chunk), MaxRecord: int64(s.MaxRecord),
		MaxBytes: int64(s.MaxBytes), StageTTL: time.Duration(s.StageTTL), Remember: time.Duration(s.Remember), Retain: time.Duration(s.Retain)}
}

// Compatible: the records that came stay where they are, so most fields may change.
func (s *Spec) Compatible(field string) bool {
	return slices.Contains([]string{"end", "chunk", "max_bytes", "stage_ttl", "remember", "retain"}, field)
}

func (s *Spec) Fill() {}

func (s *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "partitions", Read: dataset.Parsed(r, &s.Partitions, dataset.ParseCount)},
		{Name: "key", Read: r.Text(&s.Key)},
		{Name: "end", Read: r.Text(&s.End)},
		{Name: "chunk", Read: dataset.Parsed(r, &s.Chunk, dataset.ParseSize)},
		{Name: "max_record", Read: dataset.Parsed(r, &s.MaxRecord, dataset.ParseSize)},
		{Name: "max_bytes", Read: dataset.Parsed(r, &s.MaxBytes, dataset.ParseSize)},
		{Name: "stage_ttl", Read: dataset.Parsed(r, &s.StageTTL, dataset.ParseDuration)},
		{Name: "remember", Read: dataset.Parsed(r, &s.Remember, dataset.ParseDuration)},
		{Name: "retain", Read: dataset.Parsed(r, &s.Retain, dataset.ParseDuration)},
	}
}

func (s *Spec) Check(c *dataset.Check, spec *dataset.Spec) {
	if s.Partitions < 1 || s.Partitions > maxPartitions {
		c.Fail("landing.partitions", fmt.Sprint(s.Partitions), "is not a number of partitions", fmt.Sprintf("1 to %d", maxPartitions))
	}
	if s.Key != "" && !strings.HasPrefix(s.Key, "/") {
		c.Fail("landing.key", s.Key, "is not a JSON Pointer", "it begins with /, as in /user/id")
	} else if s.Key != "" && spec.Decode.Format != "json" {
		c.Fail("landing.key", s.Key, "is for records in JSON", "set decode.format: json, or push records with keys of their own")
	}
	c.Among("landing.end", s.End, endNever, endPushed)
	if s.Chunk < 1<<10 || s.Chunk > maxChunk {
		c.Fail("landing.chunk", s.Chunk.String(), "is not a size for chunks", "1KiB to 16MiB")
	}
	if s.MaxRecord < 1 || s.MaxRecord > maxRecord {
		c.Fail("landing.max_record", s.MaxRecord.String(), "is not a size for records", "1 to 32MiB")
	}
	if s.MaxBytes < 1<<20 {
		c.Fail("landing.max_bytes", s.MaxBytes.String(), "is too little", "1MiB or more")
	}
	if time.Duration(s.StageTTL) < time.Second {
		c.Fail("landing.stage_ttl", s.StageTTL.String(), "is too short", "1s or more; it must exceed the time from the first staged chunk to the commit, restarts of the producer included")
	}
	if s.Remember < s.StageTTL {
		c.Fail("landing.remember", s.Remember.String(), "is less than stage_ttl: a transaction could land twice", "make it at least "+s.StageTTL.String())
	}
	if s.Retain < 0 {
		c.Fail("landing.retain", s.Retain.String(), "is negative", "")
	}
}

func openSpec(spec *dataset.Spec, in dataset.Opening) (sources.Source, error) {
	s, ok := spec.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: no landing in its spec", spec.Name)
	}
	return Open(Options{Dataset: spec.Name, Partitions: s.Partitions, MaxRecord: int64(s.MaxRecord), Retain: time.Duration(s.Retain), Known: in.Known, Chunks: in.Chunks}), nil
}
