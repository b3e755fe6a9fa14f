package pulsar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar/auth"

	"github.com/headrace/headrace/sources"
)

// Options opens a dataset. Service, Admin, Topics and MaxRecord are required.
type Options struct {
	Dataset string
	Service string // pulsar://host:port, or pulsar+ssl://
	Admin   string // http://host:port, or https://
	Topics  []string

	Start, End End
	MaxRecord  int64 // bytes of key and value together

	// Retain and Progress are names of subscriptions; "" makes none.
	Retain, Progress string

	TLS *tls.Config
	// Auth makes a new provider of a login; nil: none.
	Auth func() (auth.Provider, error)

	// Known: segments that were listed before. Readers need none.
	Known  []sources.Segment
	Logger *slog.Logger
}

// End is where reading begins or ends.
type End struct {
	At   At
	Time time.Time        // AtTime: the first entry of that time or later
	IDs  map[string]Place // by partition as people write it; At is for the others
}

// Place is a message's id: the message of an entry, whole entries have index 0.
type Place struct {
	Ledger, Entry int64
	Index         int32
}

// At is an end that does not depend on the partition.
type At uint8

const (
	Earliest At = iota + 1 // the topic's first entry that is still there
	Latest                 // behind its last visible message when it is first listed
	AtTime
	Never // of End: reads on as records come
)

func (o *Options) check() error {
	switch {
	case o.Service == "" || o.Admin == "":
		return fmt.Errorf("dataset %s: pulsar.service and pulsar.admin must be given", o.Dataset)
	case len(o.Topics) == 0:
		return fmt.Errorf("dataset %s: pulsar.topics is empty", o.Dataset)
	case o.MaxRecord < 1 || o.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: pulsar.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.MaxRecord)
	case o.Start.At == 0 || o.End.At == 0 || o.Start.At == Never:
		return errors.New("pulsar: no start or no end")
	}
	for i, t := range o.Topics {
		o.Topics[i] = fullName(t)
	}
	o.Admin = strings.TrimSuffix(o.Admin, "/")
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// live: what is read has no end.
func (o *Options) live() bool { return o.End.At == Never }
