package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/shardsvc/cut"
)

// The kinds of input that a run may read. Add a kind of broker with one entry here and one file.
const Files = "files"

var queues = map[string]func(context.Context) (queue, error){Kafka: startKafka, Pulsar: startPulsar, RocketMQ: startRocketMQ}

// queue is the broker of one run. It is killed and started again on the same folder. Its answers to the
// judge are in records, counted from 0 in each partition.
type queue interface {
	Start(ctx context.Context) error
	Kill() error
	Close() error

	// where is the broker's address, for people.
	where() string
	// createTopic creates an empty topic.
	createTopic(ctx context.Context, name string, partitions int) error
	// writer opens the writer of an input's topic. It writes each record once.
	writer(in *input) (writer, error)
	// source is the source's part of the input's spec: it reads from the earliest record to the present
	// end, or, if the input is live, without an end.
	source(in *input) string
	// sizes gives two settings of the spec: of leases, and the block of a shuffle.
	sizes() (lease, block string)
	// exact says whether its topics can be read in bit_exact batches.
	exact() bool
	// segment is the writer's name for the segment of a range in a cut.
	segment(in *input, p *cut.Partition, r audit.Range) string
	// told gives, by partition, how many records the broker was told are done. It counts from the
	// partition's beginning. -1: none yet. nil: the broker does not answer.
	told(ctx context.Context, in *input) []int64
}

// writer is used by one goroutine.
type writer interface {
	// append appends values to a partition that holds end records. It tries until they are there. It
	// reports with put where each begins; segments have the names that queue.segment gives.
	append(ctx context.Context, r *rand.Rand, partition int, end int64, values [][]byte, put func(i int, segment string, at int64)) error
	close()
}

// Queues lists the kinds of brokers.
func Queues() (all []string) {
	for _, name := range []string{Kafka, Pulsar, RocketMQ} {
		if queues[name] != nil {
			all = append(all, name)
		}
	}
	return all
}

// Names of the kinds of brokers.
const (
	Kafka    = "kafka"
	Pulsar   = "pulsar"
	RocketMQ = "rocketmq"
)

// Sources lists all kinds of input that a run may read.
func Sources() string { return strings.Join(append([]string{Files, Landing}, Queues()...), ", ") }

// broker is the run's own queue. It is killed like the other processes.
type broker struct {
	queue
	mu sync.Mutex // one goroutine calls the methods that start and end it
}

func startBroker(ctx context.Context, kind string) (*broker, error) {
	q, err := queues[kind](ctx)
	if err != nil {
		return nil, err
	}
	return &broker{queue: q}, nil
}

func (k *broker) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Close()
}

// away reports whether the broker is being started again. That start has a deadline of its own.
func (k *broker) away() bool {
	if k == nil || !k.mu.TryLock() {
		return k != nil
	}
	k.mu.Unlock()
	return false
}

// heard gives what queue.told gives; nil while the broker is dead.
func (k *broker) heard(ctx context.Context, in *input) []int64 {
	if !k.mu.TryLock() {
		return nil
	}
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return k.told(ctx, in)
}

// killBroker kills the broker and starts it again after a while, in the background. False: it is not
// back from the last time yet.
func (t *trouble) killBroker(ctx context.Context) bool {
	if !t.broker.mu.TryLock() {
		return false
	}
	t.kills++
	if t.o.Source == Landing {
		t.tell("kill pushers")
	} else {
		t.tell("kill broker")
	}
	away := time.Duration(t.rnd.Int64N(int64(2 * time.Second)))
	t.wg.Go(func() { // ends when the broker has started; the start has a deadline
		defer t.broker.mu.Unlock()
		err := t.broker.Kill()
		if err == nil {
			timer := time.NewTimer(away)
			defer timer.Stop()
			<-timer.C
			err = t.broker.Start(ctx)
		}
		if err != nil {
			t.wrongf("the broker does not come back: %v", err)
		}
	})
	return true
}
