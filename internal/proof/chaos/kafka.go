package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/shardsvc/cut"
)

type kafka struct{ *testbroker.Broker }

func startKafka(ctx context.Context) (queue, error) {
	b, err := testbroker.StartKafka(ctx, testbroker.Options{})
	return kafka{b}, err
}

func (k kafka) where() string { return k.Addr() }

func (k kafka) createTopic(ctx context.Context, name string, partitions int) error {
	return k.CreateTopic(ctx, name, partitions, nil)
}

func (k kafka) writer(in *input) (writer, error) {
	return kafkaWriter{testbroker.NewAppender(k.Addr(), in.name)}, nil
}

// kafkaWriter writes with all codecs. The offset of a record is its number in the partition.
type kafkaWriter struct{ to *testbroker.Appender }

func (w kafkaWriter) append(ctx context.Context, r *rand.Rand, partition int, end int64, values [][]byte, put func(int, string, int64)) error {
	for i := range values {
		put(i, strconv.Itoa(partition), end+int64(i))
	}
	return w.to.Append(ctx, partition, end, values, kafkago.Compression(r.IntN(5)), func() {})
}

func (w kafkaWriter) close() { w.to.Close() }

func (k kafka) source(in *input) string {
	end, group := "latest", ", group: "+in.group()
	if in.virtual > 0 {
		group = ""
	}
	if in.live {
		end = "never"
	}
	return fmt.Sprintf("kafka: {brokers: [%q], topic: %s, start: earliest, end: %s%s}", k.Addr(), in.name, end, group)
}

func (k kafka) sizes() (lease, block string) { return "initial: 80, min: 20", "150" }
func (k kafka) exact() bool                  { return true }

// segment: a partition is one segment. With bit_exact, a cut calls it by topic and number: chaos-0/3.
func (k kafka) segment(in *input, p *cut.Partition, r audit.Range) string {
	if in.virtual > 0 {
		return r.Name[strings.LastIndexByte(r.Name, '/')+1:]
	}
	return p.Identity[strings.LastIndexByte(p.Identity, '/')+1:]
}

func (k kafka) told(ctx context.Context, in *input) []int64 {
	return k.offsets(ctx, in.group(), in.name, in.partitions)
}

// offsets gives the committed offsets of a group. -1: the partition has none. nil: the broker does not
// answer.
func (k kafka) offsets(ctx context.Context, group, topic string, partitions int) []int64 {
	client, done := k.Client()
	defer done()
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
