package main

import (
	"context"
	"io"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

const atOnce = 1000 // records of a batch

type rocketmq struct{ *testbroker.RocketMQ }

func startRocketMQ(ctx context.Context, wide bool) (broker, error) {
	o := testbroker.RocketMQOptions{HeapMiB: 512, Set: map[string]string{"mappedFileSizeCommitLog": "268435456", "accessMessageInMemoryMaxRatio": "95"}}
	if wide {
		for _, where := range []string{"InMemory", "InDisk"} {
			o.Set["maxTransferCountOnMessage"+where], o.Set["maxTransferBytesOnMessage"+where] = "1024", "4194304"
		}
	}
	b, err := testbroker.StartRocketMQ(ctx, o)
	return rocketmq{b}, err
}

func (b rocketmq) address() string { return b.NameServer() }

// fill writes batches to one queue after the other.
func (b rocketmq) fill(ctx context.Context, topic string, next func() ([]byte, error)) error {
	if err := b.CreateTopic(ctx, topic, partitions); err != nil {
		return err
	}
	a := b.NewAppender(topic)
	defer a.Close()
	var ends [partitions]int64
	for q := 0; ; q = (q + 1) % partitions {
		var values [][]byte
		for len(values) < atOnce {
			v, err := next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			values = append(values, v)
		}
		if len(values) == 0 {
			return nil
		}
		if err := a.Append(ctx, q, ends[q], values, func() {}); err != nil {
			return err
		}
		ends[q] += int64(len(values))
	}
}

func (b rocketmq) writer(ctx context.Context, topic string, partitions int) (func(context.Context, [][]byte) error, func(), error) {
	if err := b.CreateTopic(ctx, topic, partitions); err != nil {
		return nil, nil, err
	}
	a, ends, q := b.NewAppender(topic), make([]int64, partitions), 0
	write := func(ctx context.Context, values [][]byte) error {
		if err := a.Append(ctx, q, ends[q], values, func() {}); err != nil {
			return err
		}
		ends[q] += int64(len(values))
		q = (q + 1) % partitions
		return nil
	}
	return write, a.Close, nil
}
