package pulsar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar/auth"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Options opens a dataset. Service, Admin, Topics and MaxRecord are required.
type Options struct {
	Dataset string
	Service string // pulsar://host:port, or pulsar+ssl://
	Admin   string // http://host:port, or https://
	Topics  []string

	Start, End End
	MaxRecord  int64 // bytes of key and value together

	// Retain and Progress are names of subscriptions. "" makes none.
	Retain, Progress string

	TLS *tls.Config
	// Auth makes a new provider of a login. nil: no login.
	Auth  func() (auth.Provider, error)
	login *issuer // of OAuth2

	// Known has the segments that were listed before. A source that is opened only for
	// reading needs none.
	Known  []sources.Segment
	Logger *slog.Logger
}

// End is where reading begins or ends. Places are message ids, by a partition's name or, for
// all topics, its number.
type End = brokers.End[Place]

// Place is the id of a message. Index is its number in the entry, 0 for the first.
type Place struct {
	Ledger, Entry int64
	Index         int32
}

func (o *Options) check() error {
	switch {
	case o.Service == "" || o.Admin == "":
		return fmt.Errorf("dataset %s: pulsar.service and pulsar.admin must be given", o.Dataset)
	case len(o.Topics) == 0:
		return fmt.Errorf("dataset %s: pulsar.topics is empty", o.Dataset)
	case o.MaxRecord < 1 || o.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: pulsar.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.MaxRecord)
	case o.Start.At == 0 || o.End.At == 0 || o.Start.At == brokers.Never:
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

// live says whether the input has no end.
func (o *Options) live() bool { return o.End.At == brokers.Never }
