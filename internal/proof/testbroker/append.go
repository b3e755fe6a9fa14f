package testbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	askAgain      = 50 * time.Millisecond
	answersWithin = 5 * time.Second // without an answer for so long, the broker is asked again
	// A write takes longer on a machine that stands still. It is not sent again before that, because a broker
	// that stands still carries out both. A broker that is killed ends the connection.
	writtenWithin = 2 * time.Minute
)

// Appender writes each record of a topic once, even if its broker is killed during a request. If it does
// not know what became of a request, it looks where the partition ends. So nothing else may write to its
// partitions. It is used by one goroutine.
type Appender struct {
	topic     string
	client    *kafkago.Client
	transport *kafkago.Transport
}

// NewAppender writes to a topic of the broker at addr.
func NewAppender(addr, topic string) *Appender {
	t := &kafkago.Transport{MetadataTTL: time.Second, IdleTimeout: 5 * time.Second}
	return &Appender{topic, &kafkago.Client{Addr: kafkago.TCP(addr), Transport: t, Timeout: writtenWithin}, t}
}

// Close closes its connections.
func (a *Appender) Close() { a.transport.CloseIdleConnections() }

// Append appends values, in one batch, to a partition that ends at end. It tries until they are there or
// ctx ends, and calls sending before each try.
func (a *Appender) Append(ctx context.Context, partition int, end int64, values [][]byte, codec kafkago.Compression, sending func()) error {
	for {
		sending()
		why := a.try(ctx, partition, values, codec)
		if why == nil {
			return nil
		}
		at, err := a.end(ctx, partition, a.wait(ctx, why))
		switch {
		case err != nil:
			return err
		case at == end+int64(len(values)):
			return nil // it was written, and the answer was lost
		case at != end:
			return fmt.Errorf("%s/%d ends at offset %d and must end at %d: another program writes to it", a.topic, partition, at, end)
		}
	}
}

func (a *Appender) try(ctx context.Context, partition int, values [][]byte, codec kafkago.Compression) error {
	records := make([]kafkago.Record, len(values)) // each try needs new records: a reader of bytes can be read only once
	for i, v := range values {
		records[i].Value = kafkago.NewBytes(v)
	}
	res, err := a.client.Produce(ctx, &kafkago.ProduceRequest{Topic: a.topic, Partition: partition,
		RequiredAcks: kafkago.RequireAll, Compression: codec, Records: kafkago.NewRecordReader(records...)})
	if err == nil {
		err = res.Error
	}
	return err
}

// End gives the end of a partition. It asks until the broker answers or ctx ends.
func (a *Appender) End(ctx context.Context, partition int) (int64, error) {
	return a.end(ctx, partition, nil)
}

// end does what End does. If it fails, its error contains why.
func (a *Appender) end(ctx context.Context, partition int, why error) (int64, error) {
	for ; ; why = a.wait(ctx, why) {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("writing to %s/%d: %w (%v)", a.topic, partition, ctx.Err(), why)
		}
		res, err := a.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{
			a.topic: {kafkago.LastOffsetOf(partition)}}})
		if err != nil {
			why = err
			continue
		}
		for _, o := range res.Topics[a.topic] {
			if o.Error == nil {
				return o.LastOffset, nil
			}
			why = o.Error
		}
	}
}

// wait waits a moment. It also forgets that the broker could not be reached, which the transport remembers.
func (a *Appender) wait(ctx context.Context, why error) error {
	t := time.NewTimer(askAgain)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	a.transport.CloseIdleConnections()
	return why
}

// Produce writes records to a partition, all of them or none. It tries again after an error that means
// that nothing was written: on a busy machine a broker has no leaders for a moment.
func (b *Broker) Produce(ctx context.Context, req kafkago.ProduceRequest, records []kafkago.Record) error {
	client, done := b.Client()
	defer done()
	keys, values := make([][]byte, len(records)), make([][]byte, len(records))
	for i, r := range records { // each try needs new records: a reader of bytes can be read only once
		var err, err2 error
		keys[i], err = protocol.ReadAll(r.Key)
		values[i], err2 = protocol.ReadAll(r.Value)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
	}
	for within := time.Now().Add(2 * time.Minute); ; {
		for i := range records {
			records[i].Key, records[i].Value = kafkago.NewBytes(keys[i]), kafkago.NewBytes(values[i])
		}
		req.Records, req.RequiredAcks = kafkago.NewRecordReader(records...), kafkago.RequireAll
		res, err := client.Produce(ctx, &req)
		if err == nil {
			err = res.Error
		}
		if !NothingWritten(err) || time.Now().After(within) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}

// NothingWritten reports whether an error of Client.Produce means that no record was written, so that
// it can be tried again: the broker refused, or the client found nobody to send the records to. On a
// busy machine the answer about the metadata of a topic that grows may lack the topic for a moment.
func NothingWritten(err error) bool {
	for _, one := range []error{kafkago.NotLeaderForPartition, kafkago.LeaderNotAvailable, kafkago.UnknownTopicOrPartition,
		protocol.ErrNoLeader, protocol.ErrNoPartition} {
		if errors.Is(err, one) {
			return true
		}
	}
	_, before := errors.AsType[*protocol.TopicError](err) // without it, ErrNoTopic is about the answer
	return before && errors.Is(err, protocol.ErrNoTopic)
}
