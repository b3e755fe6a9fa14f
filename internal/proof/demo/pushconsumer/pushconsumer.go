// Package pushconsumer runs RocketMQ's official Go client as most programs do: a push consumer in a group,
// whose offsets the library commits every five seconds. It writes the messages to a pipe, because there
// is no Python client. The quick start and the benchmark compare Headrace with it. It uses no code of
// Headrace.
package pushconsumer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Options of a consumer.
type Options struct {
	NameServer, Topic, Group string
	// Instance names this process in its group.
	Instance string
	// Tuned takes as many messages in one pull and in one call as the library allows. The messages of
	// one call are written as one, with After between the bodies. Otherwise the library's defaults apply.
	Tuned bool
	After string
}

// Assigned in the place of a length marks an entry that is not a message.
const Assigned = 1<<32 - 1

// most is the library's own limit of messages in a pull and in a call.
const most = 1024

// Run consumes until ctx ends or out fails. It writes for each message, as little-endian numbers, queue
// (4 bytes), offset (8) and length (4), then the body. When the consumer is assigned queues, it writes
// an entry without a body whose length is Assigned.
func Run(ctx context.Context, o Options, out io.Writer) error {
	rlog.SetLogLevel("error")
	w := &writer{out: bufio.NewWriterSize(out, 1<<20)}
	write := w.each
	if o.Tuned {
		write = func(all []*primitive.MessageExt) error { return w.joined(all, o.After) }
	}
	average := consumer.AllocateByAveragely // the library's default
	assign := func(group, id string, queues []*primitive.MessageQueue, ids []string) []*primitive.MessageQueue {
		ours := average(group, id, queues, ids)
		if len(ours) > 0 {
			w.assigned()
		}
		return ours
	}
	options := []consumer.Option{consumer.WithStrategy(assign), consumer.WithNameServer(primitive.NamesrvAddr{o.NameServer}), consumer.WithGroupName(o.Group),
		consumer.WithInstance(o.Instance), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}
	if o.Tuned {
		options = append(options, consumer.WithPullBatchSize(most), consumer.WithConsumeMessageBatchMaxSize(most), consumer.WithPullInterval(0))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	err = c.Subscribe(o.Topic, consumer.MessageSelector{}, func(_ context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if err := write(all); err != nil {
			failed(err)
			return consumer.ConsumeRetryLater, err
		}
		return consumer.ConsumeSuccess, nil
	})
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return c.Shutdown() // Shutdown commits the offsets
}

// writer is called by several goroutines of the library at the same time.
type writer struct {
	mu   sync.Mutex
	out  *bufio.Writer
	b    []byte
	said bool
}

// joined writes several messages as one.
func (w *writer) joined(all []*primitive.MessageExt, after string) error {
	if len(all) == 0 {
		return nil
	}
	var bodies []byte
	for i, m := range all {
		if i > 0 {
			bodies = append(bodies, after...)
		}
		bodies = append(bodies, m.Body...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.message(all[0].Queue.QueueId, all[0].QueueOffset, bodies); err != nil {
		return err
	}
	return w.out.Flush()
}

func (w *writer) each(all []*primitive.MessageExt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range all {
		if err := w.message(m.Queue.QueueId, m.QueueOffset, m.Body); err != nil {
			return err
		}
	}
	return w.out.Flush()
}

func (w *writer) message(queue int, offset int64, body []byte) error {
	w.b = binary.LittleEndian.AppendUint32(w.b[:0], uint32(queue))
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(offset))
	w.b = binary.LittleEndian.AppendUint32(w.b, uint32(len(body)))
	if _, err := w.out.Write(w.b); err != nil {
		return err
	}
	_, err := w.out.Write(body)
	return err
}

// assigned writes the entry Assigned, once.
func (w *writer) assigned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said {
		return
	}
	w.said = true
	_, _ = w.out.Write(append(make([]byte, 12), 255, 255, 255, 255))
	_ = w.out.Flush() // if it failed, so will the next message
}
