package rocketmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	headWithin  = 20 * time.Second // a head that fell back may rise again for so long
	topicWithin = 15 * time.Second // a broker that starts again is registered within 10 s
	trimWithin  = 30 * time.Second // a queue's minimum is corrected some seconds after its messages were deleted
	routeFor    = 5 * time.Second  // how long a route is used before it is asked for again
	readGroup   = "headrace"       // pulls need a group's name; it gets no offsets
)

// Options opens a dataset. NameServers, Topics and MaxRecord are required.
type Options struct {
	Dataset     string
	NameServers []string
	Topics      []string
	// Brokers are the brokers that must be registered before anything is listed. A name
	// server does not know brokers that are down, so without this list their queues would
	// not be missed. Empty: the registered brokers.
	Brokers []string
	// Tags selects messages: only those with one of these tags are records. Empty: all are.
	Tags []string

	Start, End End
	MaxRecord  int64 // bytes of a body, decompressed
	Group      string
	// Bare says that no column needs keys or properties.
	Bare bool

	TLS         *tls.Config
	Credentials remoting.Credentials

	// Known has the segments that were listed before. They keep their numbers and ends. A
	// source that is opened only for reading needs none.
	Known  []sources.Segment
	Logger *slog.Logger

	// Defaults: the constants above. Tests set shorter times.
	headWithin, topicWithin, trimWithin, fellWithin, answerWithin time.Duration
}

// End is where reading begins or ends. Places are offsets, by "topic/broker/queue",
// "broker/queue" or "queue".
type End = brokers.End[int64]

func (o *Options) check() error {
	switch {
	case len(o.NameServers) == 0:
		return fmt.Errorf("dataset %s: rocketmq.name_servers is empty", o.Dataset)
	case len(o.Topics) == 0:
		return fmt.Errorf("dataset %s: rocketmq.topics is empty", o.Dataset)
	case o.MaxRecord < 1 || o.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: rocketmq.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.MaxRecord)
	case o.Start.At == 0 || o.End.At == 0 || o.Start.At == brokers.Never:
		return errors.New("rocketmq: no start or no end")
	}
	for _, d := range []struct {
		is    *time.Duration
		usual time.Duration
	}{{&o.headWithin, headWithin}, {&o.topicWithin, topicWithin}, {&o.trimWithin, trimWithin}, {&o.fellWithin, fellWithin}} {
		if *d.is == 0 {
			*d.is = d.usual
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// live says whether the input has no end.
func (o *Options) live() bool { return o.End.At == brokers.Never }

// group returns the name of the group in pull requests.
func (o *Options) group() string {
	if o.Group != "" {
		return o.Group
	}
	return readGroup
}
