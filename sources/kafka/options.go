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
)

const (
	fetchMost    = 4 << 20   // bytes asked for at once
	fetchLeast   = 64 << 10  // and at least, however short the range
	arenaMost    = 8 << 20   // of decompressed batches in one Batch, about
	sparesMost   = 2         // buffers of closed cursors that are kept: of a lease's end and the next one's begin
	inflatedMost = 256 << 20 // of one batch, decompressed
	headWithin   = 20 * time.Second
	topicWithin  = 3 * time.Second // for a new topic to be known to every broker
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

	// Known: segments that were listed before, which keep their numbers and ends.
	// Readers need none.
	Known  []sources.Segment
	Logger *slog.Logger

	headWithin time.Duration // tests are less patient
}

// End is where reading begins or ends.
type End struct {
	At      At
	Time    time.Time        // AtTime: the first record of that time or later
	Offsets map[string]int64 // by "topic/number" or, for all topics, "number"; At is for the others
}

// At is an end that does not depend on the partition.
type At uint8

const (
	Earliest At = iota + 1 // where the partition's log begins
	Latest                 // its last stable offset when it is first listed
	AtTime
	Never // of End: reads on as records come
)

func (o *Options) check() error {
	switch {
	case len(o.Brokers) == 0:
		return fmt.Errorf("dataset %s: kafka.brokers is empty", o.Dataset)
	case len(o.Topics) == 0:
		return fmt.Errorf("dataset %s: kafka.topics is empty", o.Dataset)
	case o.MaxRecord < 1 || o.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: kafka.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.MaxRecord)
	case o.Start.At == 0 || o.End.At == 0 || o.Start.At == Never:
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

// live: what is read has no end.
func (o *Options) live() bool { return o.End.At == Never }

func (o *Options) topics() []string { return o.Topics }

func (o *Options) mechanism() string {
	if o.SASL == nil {
		return ""
	}
	return o.SASL.Name()
}

// openSpec opens the topics of a dataset's spec: a *Whole of one that is bit_exact,
// else a *Source. Files that hold passwords must lie in one of the allowed roots.
func openSpec(spec *dataset.Spec, in dataset.Opening) (sources.Source, error) {
	k, ok := spec.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: no kafka in its spec", spec.Name)
	}
	o := Options{Dataset: spec.Name, Brokers: k.Brokers, Topics: k.Topics, MaxRecord: int64(k.MaxRecord),
		Group: k.Group, Known: in.Known, Logger: in.Logger}
	var err error
	if o.Start, err = endOf(k.Start, k.StartOffsets); err == nil {
		o.End, err = endOf(k.End, k.EndOffsets)
	}
	if err == nil {
		err = o.secure(k, in.AllowedRoots)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", spec.Name, err)
	}
	if spec.BitExact != nil {
		return opened(OpenWhole(o))
	}
	return opened(Open(o))
}

// opened is not a nil pointer that looks like a source.
func opened[S sources.Source](s S, err error) (sources.Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func endOf(text string, offsets map[string]int64) (End, error) {
	e := End{Offsets: offsets}
	switch text {
	case "earliest":
		e.At = Earliest
	case "latest":
		e.At = Latest
	case "never":
		e.At = Never
	default:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return e, fmt.Errorf("kafka: %q is neither earliest, latest nor a time", text)
		}
		e.At, e.Time = AtTime, t
	}
	return e, nil
}
