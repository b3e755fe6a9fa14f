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
)

const (
	headWithin  = 20 * time.Second // for a head that fell back to come again
	topicWithin = 15 * time.Second // a broker that starts again is registered within 10 s
	trimWithin  = 30 * time.Second // a queue's minimum is corrected some seconds after its data went
	routeFor    = 5 * time.Second  // how long a route is believed
	readGroup   = "headrace"       // pulls need a group's name; it gets no offsets
)

// Options opens a dataset. NameServers, Topics and MaxRecord are required.
type Options struct {
	Dataset     string
	NameServers []string
	Topics      []string
	// Brokers must all be registered before anything is listed: a name server does
	// not tell of a broker that is down. Empty: the brokers that are there.
	Brokers []string
	// Tags: only messages with one of these tags are records. Empty: all.
	Tags []string

	Start, End End
	MaxRecord  int64 // bytes of a body, decompressed
	Group      string
	// Bare: nobody needs keys and properties.
	Bare bool

	TLS         *tls.Config
	Credentials remoting.Credentials

	// Known: segments that were listed before, which keep their numbers and ends.
	// Readers need none.
	Known  []sources.Segment
	Logger *slog.Logger

	// Tests are less patient.
	headWithin, topicWithin, trimWithin, answerWithin time.Duration
}

// End is where reading begins or ends.
type End struct {
	At      At
	Time    time.Time        // AtTime: the first message that was stored then or later
	Offsets map[string]int64 // by "topic/broker/queue", "broker/queue" or "queue"; At is for the others
}

// At is an end that does not depend on the partition.
type At uint8

const (
	Earliest At = iota + 1 // the queue's minimum
	Latest                 // its head when it is first listed
	AtTime
	Never // of End: reads on as messages come
)

func (o *Options) check() error {
	switch {
	case len(o.NameServers) == 0:
		return fmt.Errorf("dataset %s: rocketmq.name_servers is empty", o.Dataset)
	case len(o.Topics) == 0:
		return fmt.Errorf("dataset %s: rocketmq.topics is empty", o.Dataset)
	case o.MaxRecord < 1 || o.MaxRecord > 1<<30:
		return fmt.Errorf("dataset %s: rocketmq.max_record is %d bytes; it must be from 1 to 1 GiB", o.Dataset, o.MaxRecord)
	case o.Start.At == 0 || o.End.At == 0 || o.Start.At == Never:
		return errors.New("rocketmq: no start or no end")
	}
	for _, d := range []struct {
		is    *time.Duration
		usual time.Duration
	}{{&o.headWithin, headWithin}, {&o.topicWithin, topicWithin}, {&o.trimWithin, trimWithin}} {
		if *d.is == 0 {
			*d.is = d.usual
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return nil
}

// live: what is read has no end.
func (o *Options) live() bool { return o.End.At == Never }

// group is the name that pulls carry.
func (o *Options) group() string {
	if o.Group != "" {
		return o.Group
	}
	return readGroup
}
