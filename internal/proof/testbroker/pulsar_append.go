package testbroker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
)

// PulsarAppender writes each record of a topic once, even if the broker is killed during a request: the
// broker drops messages that repeat a producer's number (Pulsar.Deduplicate). The key of a record is its
// number in its partition. Nothing else may write to the topic. It is used by one goroutine.
type PulsarAppender struct {
	topic     string
	client    pulsar.Client
	producers map[int]pulsar.Producer
	tails     map[int]*pulsarTail
	Codec     pulsar.CompressionType // of partitions whose first write is still to come
}

// PulsarPlace is the place of a record.
type PulsarPlace struct {
	Ledger, Entry int64
	Index         int32 // in the entry
}

// pulsarTail reads back what was written to a partition.
type pulsarTail struct {
	reader pulsar.Reader // nil: it must be opened again
	next   int64         // number of the next record
	last   pulsar.MessageID
}

// NewPulsarAppender writes to a topic of a broker.
func NewPulsarAppender(b *Pulsar, topic string) (*PulsarAppender, error) {
	c, err := b.Client()
	return &PulsarAppender{topic: topic, client: c, producers: map[int]pulsar.Producer{}, tails: map[int]*pulsarTail{}}, err
}

func (b *Pulsar) appendOne(ctx context.Context, topic string) error {
	a, err := NewPulsarAppender(b, topic)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Append(ctx, 0, 0, [][]byte{[]byte("v")}, func() {})
}

// Client is an official client, connected without TLS and login.
func (b *Pulsar) Client() (pulsar.Client, error) {
	return pulsar.NewClient(pulsar.ClientOptions{URL: b.URL(), ConnectionTimeout: 5 * time.Second, OperationTimeout: 5 * time.Second,
		Logger: log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil))), MetricsRegisterer: prometheus.NewRegistry()})
}

const (
	pulsarAppendMost = 10_000 // most records of one Append
	neverFlushed     = 1000 * time.Hour
)

// Close closes its client.
func (a *PulsarAppender) Close() { a.client.Close() }

// Append appends values, in one entry of at most 4 MiB, to a partition that holds end records.
func (a *PulsarAppender) Append(ctx context.Context, partition int, end int64, values [][]byte, sending func()) error {
	if len(values) > pulsarAppendMost {
		return fmt.Errorf("writing to %s, partition %d: %d records in one Append, and at most %d fit into one entry", a.topic, partition, len(values), pulsarAppendMost)
	}
	p, err := a.producer(ctx, partition)
	if err != nil {
		return err
	}
	sending()
	var wg sync.WaitGroup
	errs := make([]error, len(values))
	for i, v := range values {
		number := end + int64(i)
		wg.Add(1)
		p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: v, Key: strconv.FormatInt(number, 10), SequenceID: &number},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { errs[i] = err; wg.Done() })
	}
	flushed := make(chan error, 1)
	go func() { // ends when the broker answers, or with Close
		err := p.FlushWithCtx(ctx)
		if err == nil {
			wg.Wait()
		}
		flushed <- err
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-flushed:
		if err != nil {
			return fmt.Errorf("writing to %s, partition %d: %w", a.topic, partition, err)
		}
	}
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("writing to %s, partition %d: %w", a.topic, partition, err)
		}
	}
	return nil
}

// Places reads back where the n records from number end on are. Successive calls must follow each other. It
// tries until it knows the places or ctx ends.
func (a *PulsarAppender) Places(ctx context.Context, partition int, end int64, n int) (all []PulsarPlace, err error) {
	t := a.tails[partition]
	if t == nil {
		t = &pulsarTail{last: pulsar.EarliestMessageID()}
		a.tails[partition] = t
	}
	for len(all) < n {
		m, why := t.message(ctx, a, partition)
		var number int64
		if why == nil {
			number, why = strconv.ParseInt(m.Key(), 10, 64)
		}
		if why == nil && number > t.next {
			why = fmt.Errorf("record %d came, and record %d should be next", number, t.next)
		}
		if why != nil {
			t.close()
			if err := wait(ctx, why); err != nil {
				return nil, fmt.Errorf("reading what was written to %s: %w", a.partition(partition), err)
			}
			continue
		}
		if number < t.next {
			continue // a reader that was opened again repeats records
		}
		t.next, t.last = number+1, m.ID()
		if number >= end {
			all = append(all, PulsarPlace{m.ID().LedgerID(), m.ID().EntryID(), max(0, m.ID().BatchIdx())})
		}
	}
	return all, nil
}

func (t *pulsarTail) message(ctx context.Context, a *PulsarAppender, partition int) (m pulsar.Message, err error) {
	if t.reader == nil {
		from := t.last
		if t.next > 0 { // begin with the whole entry again
			from = pulsar.NewMessageID(t.last.LedgerID(), t.last.EntryID(), -1, -1)
		}
		if t.reader, err = a.client.CreateReader(pulsar.ReaderOptions{Topic: a.partition(partition), StartMessageID: from, StartMessageIDInclusive: true}); err != nil {
			t.reader = nil
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	return t.reader.Next(ctx)
}

func (t *pulsarTail) close() {
	if t.reader != nil {
		t.reader.Close()
		t.reader = nil
	}
}

func (a *PulsarAppender) partition(n int) string { return fmt.Sprintf("%s-partition-%d", a.topic, n) }

func (a *PulsarAppender) producer(ctx context.Context, partition int) (pulsar.Producer, error) {
	for a.producers[partition] == nil {
		p, err := a.client.CreateProducer(pulsar.ProducerOptions{Topic: a.partition(partition), Name: "appender-" + strconv.Itoa(partition), SendTimeout: -1,
			// Only Append may flush. A timer of the client would cut the records into two entries, and so
			// would a queue that is too short for them.
			BatchingMaxPublishDelay: neverFlushed, MaxPendingMessages: pulsarAppendMost, BatchingMaxMessages: pulsarAppendMost,
			CompressionType: a.Codec, BatchingMaxSize: 4 << 20, DisableBlockIfQueueFull: false})
		if err == nil {
			a.producers[partition] = p
			break
		}
		if err := wait(ctx, err); err != nil {
			return nil, err
		}
	}
	return a.producers[partition], nil
}

// End gives the number of records in a partition. It asks until the broker answers or ctx ends.
func (a *PulsarAppender) End(ctx context.Context, partition int) (int64, error) {
	for {
		n, err := a.last(ctx, partition)
		if err == nil {
			return n, nil
		}
		if err := wait(ctx, err); err != nil {
			return 0, err
		}
	}
}

// last reads a partition's last record.
func (a *PulsarAppender) last(ctx context.Context, partition int) (int64, error) {
	r, err := a.client.CreateReader(pulsar.ReaderOptions{Topic: a.partition(partition), StartMessageID: pulsar.LatestMessageID(), StartMessageIDInclusive: true})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	id, err := r.GetLastMessageID()
	if err != nil {
		return 0, err
	}
	if id.EntryID() < 0 {
		return 0, nil
	}
	from, err := a.client.CreateReader(pulsar.ReaderOptions{Topic: a.partition(partition), StartMessageIDInclusive: true,
		StartMessageID: pulsar.NewMessageID(id.LedgerID(), id.EntryID(), -1, -1)})
	if err != nil {
		return 0, err
	}
	defer from.Close()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	for {
		m, err := from.Next(ctx)
		if err != nil {
			return 0, err
		}
		if at := m.ID(); at.BatchIdx() >= at.BatchSize()-1 {
			n, err := strconv.ParseInt(m.Key(), 10, 64)
			return n + 1, err
		}
	}
}

func wait(ctx context.Context, why error) error {
	t := time.NewTimer(askAgain)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w (%v)", ctx.Err(), why)
	case <-t.C:
		return nil
	}
}
