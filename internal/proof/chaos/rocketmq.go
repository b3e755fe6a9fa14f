package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/shardsvc/cut"
)

// rocketmq is a name server, which is not killed, and one broker.
type rocketmq struct{ *testbroker.RocketMQ }

func startRocketMQ(ctx context.Context) (queue, error) {
	b, err := testbroker.StartRocketMQ(ctx, testbroker.RocketMQOptions{})
	return rocketmq{b}, err
}

func (k rocketmq) where() string { return k.Addr() }

func (k rocketmq) createTopic(ctx context.Context, name string, partitions int) error {
	return k.CreateTopic(ctx, name, partitions)
}

func (k rocketmq) writer(in *input) (writer, error) {
	return rocketmqWriter{k.NewAppender(in.name)}, nil
}

// rocketmqWriter writes batches, and some records alone. The offset of a record is its number.
type rocketmqWriter struct{ to *testbroker.RocketAppender }

func (w rocketmqWriter) append(ctx context.Context, r *rand.Rand, partition int, end int64, values [][]byte, put func(int, string, int64)) error {
	for i := range values {
		put(i, strconv.Itoa(partition), end+int64(i))
	}
	for len(values) > 0 {
		n := min(len(values), 1+r.IntN(400))
		if err := w.to.Append(ctx, partition, end, values[:n], func() {}); err != nil {
			return err
		}
		values, end = values[n:], end+int64(n)
	}
	return nil
}

func (w rocketmqWriter) close() { w.to.Close() }

func (k rocketmq) source(in *input) string {
	end := "latest"
	if in.live {
		end = "never"
	}
	return fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s, start: earliest, end: %s, group: %s}", k.NameServer(), in.name, end, in.group())
}

func (k rocketmq) sizes() (lease, block string) { return "initial: 80, min: 20", "150" }
func (k rocketmq) exact() bool                  { return false }

// segment: a queue is one segment, called for example rocketmq:c1/b0/chaos-0/3.
func (k rocketmq) segment(_ *input, p *cut.Partition, _ audit.Range) string {
	return p.Identity[strings.LastIndexByte(p.Identity, '/')+1:]
}

func (k rocketmq) told(ctx context.Context, in *input) []int64 {
	all := make([]int64, in.partitions)
	for p := range all {
		a, err := k.Client().Call(ctx, k.Addr(), remoting.QueryOffset(remoting.Queue{Topic: in.name, ID: p}, in.group()))
		switch {
		case remoting.CodeOf(err) == remoting.NoOffset:
			all[p] = -1
			continue
		case err != nil:
			return nil
		}
		if all[p], err = remoting.OffsetOf(a); err != nil {
			return nil
		}
	}
	return all
}
