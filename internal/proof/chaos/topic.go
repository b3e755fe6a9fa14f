package chaos

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

// What a run may read.
const (
	Files = "files"
	Kafka = "kafka"
)

// broker is the run's own Kafka, which is killed like everybody else.
type broker struct {
	mu   sync.Mutex // a broker's methods are for one goroutine
	b    *testbroker.Broker
	addr string
}

func startBroker(ctx context.Context) (*broker, error) {
	b, err := testbroker.StartKafka(ctx, testbroker.Options{})
	if err != nil {
		return nil, err
	}
	return &broker{b: b, addr: b.Addr()}, nil
}

func (k *broker) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Close()
}

// away: it is being started again, which has a deadline of its own.
func (k *broker) away() bool {
	if k == nil || !k.mu.TryLock() {
		return k != nil
	}
	k.mu.Unlock()
	return false
}

// killBroker ends the broker and starts it again after a while, in the background. False:
// it is not back from the last time yet.
func (t *trouble) killBroker(ctx context.Context) bool {
	if !t.broker.mu.TryLock() {
		return false
	}
	t.kills++
	t.tell("kill broker")
	away := time.Duration(t.rnd.Int64N(int64(2 * time.Second)))
	t.wg.Go(func() { // ends with the broker's start, which has a deadline
		defer t.broker.mu.Unlock()
		err := t.broker.b.Kill()
		if err == nil {
			timer := time.NewTimer(away)
			defer timer.Stop()
			<-timer.C
			err = t.broker.b.Start(ctx)
		}
		if err != nil {
			t.wrongf("the broker does not come back: %v", err)
		}
	})
	return true
}

// produce puts all records of an input into its topic, which it makes: runs of
// unequal length to one partition after the other, in the order of ids, with all
// codecs. With a rate it takes its time and survives the broker's deaths. It returns
// where each partition ends.
func (in *input) produce(ctx context.Context, r *rand.Rand, rate float64) (heads []int64, err error) {
	to := testbroker.NewAppender(in.broker, in.name)
	defer to.Close()
	heads = make([]int64, in.partitions)
	began := time.Now()
	for id, p := 0, 0; id < in.records; p = (p + 1) % in.partitions {
		n := min(1+r.IntN(400), in.records-id)
		var values [][]byte
		for range n {
			var value bytes.Buffer
			in.record(&value, r, id)
			in.put(strconv.Itoa(p), heads[p]+int64(len(values)), id)
			values = append(values, bytes.TrimRight(value.Bytes(), "\r\n"))
			id++
		}
		if rate > 0 {
			if err := until(ctx, began.Add(time.Duration(float64(id)/rate*float64(time.Second)))); err != nil {
				return nil, err
			}
		}
		if err := to.Append(ctx, p, heads[p], values, kafkago.Compression(r.IntN(5)), func() {}); err != nil {
			return nil, err
		}
		heads[p] += int64(n)
	}
	return heads, nil
}

func until(ctx context.Context, then time.Time) error {
	t := time.NewTimer(time.Until(then))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// committed says whether a group's offsets are the heads; false while nobody answers.
func (k *broker) committed(ctx context.Context, group, topic string, heads []int64) bool {
	return slices.Equal(k.offsets(ctx, group, topic, len(heads)), heads)
}

// offsets of a group; -1: there is none. Nothing while nobody answers.
func (k *broker) offsets(ctx context.Context, group, topic string, partitions int) []int64 {
	if !k.mu.TryLock() {
		return nil // it is dead
	}
	defer k.mu.Unlock()
	client, done := k.b.Client()
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ask := &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {}}}
	for p := range partitions {
		ask.Topics[topic] = append(ask.Topics[topic], p)
	}
	reply, err := client.OffsetFetch(ctx, ask)
	if err != nil || reply.Error != nil || len(reply.Topics[topic]) != partitions {
		return nil
	}
	all := make([]int64, partitions)
	for _, p := range reply.Topics[topic] {
		if p.Error != nil {
			return nil
		}
		all[p.Partition] = p.CommittedOffset
	}
	return all
}
