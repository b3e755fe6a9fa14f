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

// What a run may read beside Files. A new kind of broker is one entry and one file.
const Files = "files"

var queues = map[string]func(context.Context) (queue, error){Kafka: startKafka, Pulsar: startPulsar, RocketMQ: startRocketMQ}

// queue is a broker of a run's own: it is started, killed and started again on the same
// folder. What the judge asks of it is in records, counted from 0 in each partition.
type queue interface {
	Start(ctx context.Context) error
	Kill() error
	Close() error

	// where is its address, for people.
	where() string
	// createTopic makes an empty topic.
	createTopic(ctx context.Context, name string, partitions int) error
	// writer writes to an input's topic, each record once.
	writer(in *input) (writer, error)
	// source is the source's part of an input's spec, read from the earliest on to its
	// end as of now, or, if it is live, without an end.
	source(in *input) string
	// sizes of the spec: its lease, and a block of shuffled records.
	sizes() (lease, block string)
	// exact says whether its topics can be read in bit_exact batches.
	exact() bool
	// segment is what the writer calls the place where a cut's range lies.
	segment(in *input, p *cut.Partition, r audit.Range) string
	// told says how many records of each partition the broker was told are done: all
	// below are. -1: none yet. Nothing while nobody answers.
	told(ctx context.Context, in *input) []int64
}

// writer is for one goroutine.
type writer interface {
	// append puts values behind a partition that holds end records. It tries until they
	// are there, and says of each where it begins; segments are what queue.segment says.
	append(ctx context.Context, r *rand.Rand, partition int, end int64, values [][]byte, put func(i int, segment string, at int64)) error
	close()
}

// Queues are the kinds of brokers.
func Queues() (all []string) {
	for _, name := range []string{Kafka, Pulsar, RocketMQ} {
		if queues[name] != nil {
			all = append(all, name)
		}
	}
	return all
}

// Names of kinds.
const (
	Kafka    = "kafka"
	Pulsar   = "pulsar"
	RocketMQ = "rocketmq"
)

// Sources are all that a run may read.
func Sources() string { return strings.Join(append([]string{Files, Landing}, Queues()...), ", ") }

// broker is the run's own queue, which is killed like everybody else.
type broker struct {
	queue
	mu sync.Mutex // its methods that start and end it are for one goroutine
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

// away: it is being started again, which has a deadline of its own.
func (k *broker) away() bool {
	if k == nil || !k.mu.TryLock() {
		return k != nil
	}
	k.mu.Unlock()
	return false
}

// heard is told of an input, unless the broker is dead.
func (k *broker) heard(ctx context.Context, in *input) []int64 {
	if !k.mu.TryLock() {
		return nil
	}
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return k.told(ctx, in)
}

// killBroker ends the broker and starts it again after a while, in the background. False:
// it is not back from the last time yet.
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
	t.wg.Go(func() { // ends with the broker's start, which has a deadline
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
