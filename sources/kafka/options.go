package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	fetchMost    = 4 << 20          // most bytes that one request asks for
	fetchLeast   = 64 << 10         // least bytes, however short the range
	arenaMost    = 8 << 20          // bytes of decompressed batches in one Batch, about
	sparesMost   = 2                // buffers of closed cursors that are kept for the next cursors
	inflatedMost = 256 << 20        // bytes of one batch, decompressed
	headWithin   = 20 * time.Second // for a new leader to know its last stable offset
	topicWithin  = 3 * time.Second  // for a new topic to be known to every broker
)

// Options opens a dataset. Brokers, Topics and MaxRecord are required.
type Options struct {
	Dataset string
	Brokers []string
	Topics  []string

	Start, End End
	MaxRecord  int64 // bytes of key and value together
	Group      string

	TLS  *tls.Config
	SASL sasl.Mechanism
	User string // of SASL, for errors

	// Known has the segments that were listed before. They keep their numbers and ends. A
	// source that is opened only for reading needs none.
	Known  []sources.Segment
	Logger *slog.Logger

	headWithin time.Duration // default headWithin; tests set a shorter one
}

// End is where reading begins or ends. Places are offsets, by "topic/number" or, for all
// topics, "number".
type End = brokers.End[int64]

func (o *Options) check() error {
	switch {
	case len(o.Brokers) == 0:
		return fmt.Errorf("dataset %s: kafka.brokers is empty", o.Dataset)
	case len(o.Topics) == 0:
		return fmt.Errorf("dataset %s: kafka.topics is empty", o.Dataset)
	case o.MaxRecord < 1 || o.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: kafka.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.MaxRecord)
	case o.Start.At == 0 || o.End.At == 0 || o.Start.At == brokers.Never:
		return errors.New("kafka: no start or no end")
	}
	if o.headWithin == 0 {
		o.headWithin = headWithin
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// live says whether the input has no end.
func (o *Options) live() bool { return o.End.At == brokers.Never }

func (o *Options) mechanism() string {
	if o.SASL == nil {
		return ""
	}
	return o.SASL.Name()
}

// openSpec opens the topics of a dataset's spec: as a *Whole if it is bit_exact, else as a
// *Source. Files that hold passwords must lie in one of the allowed roots.
func openSpec(spec *dataset.Spec, in dataset.Opening) (sources.Source, error) {
	k, ok := spec.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: no kafka in its spec", spec.Name)
	}
	o := Options{Dataset: spec.Name, Brokers: k.Brokers, Topics: k.Topics, MaxRecord: int64(k.MaxRecord),
		Group: k.Group, Known: in.Known, Logger: in.Logger}
	var err error
	if o.Start, err = brokers.EndOf("kafka", k.Start, k.StartOffsets); err == nil {
		o.End, err = brokers.EndOf("kafka", k.End, k.EndOffsets)
	}
	if err == nil {
		err = o.secure(k, in.AllowedRoots)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", spec.Name, err)
	}
	if spec.BitExact != nil {
		return opened(newWhole(o))
	}
	return opened(Open(o))
}

// opened returns a nil interface after an error, instead of one that holds a nil pointer.
func opened[S sources.Source](s S, err error) (sources.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
