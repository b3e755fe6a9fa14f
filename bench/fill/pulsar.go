package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

type pulsar struct{ *testbroker.Pulsar }

func startPulsar(ctx context.Context) (broker, error) {
	b, err := testbroker.StartPulsar(ctx, testbroker.PulsarOptions{EntriesPerLedger: 5000})
	return pulsar{b}, err
}

func (b pulsar) address() string { return b.URL() + " " + b.AdminURL() }

// fill writes with the library's defaults: batches of up to 128 KiB, not compressed.
func (b pulsar) fill(ctx context.Context, topic string, next func() ([]byte, error)) error {
	if err := b.CreateTopic(ctx, topic, partitions); err != nil {
		return err
	}
	c, err := b.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	var to [partitions]client.Producer
	for p := range to {
		if to[p], err = producer(ctx, c, fmt.Sprintf("%s-partition-%d", topic, p), 0); err != nil {
			return err
		}
	}
	var failed atomic.Pointer[error]
	for n := 0; failed.Load() == nil; n++ {
		v, err := next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		to[n%partitions].SendAsync(ctx, &client.ProducerMessage{Payload: v}, func(_ client.MessageID, _ *client.ProducerMessage, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	for _, p := range to {
		if err := p.FlushWithCtx(ctx); err != nil {
			return err
		}
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// writer's records have waited for others already, so the library's batches wait only 1 ms more.
func (b pulsar) writer(ctx context.Context, topic string, partitions int) (func(context.Context, [][]byte) error, func(), error) {
	if err := b.CreateTopic(ctx, topic, partitions); err != nil {
		return nil, nil, err
	}
	c, err := b.Client()
	if err != nil {
		return nil, nil, err
	}
	to := make([]client.Producer, partitions)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for p := range to {
		g.Go(func() (err error) {
			to[p], err = producer(gctx, c, fmt.Sprintf("%s-partition-%d", topic, p), time.Millisecond)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		c.Close()
		return nil, nil, err
	}
	var failed atomic.Pointer[error]
	turn := 0
	write := func(ctx context.Context, values [][]byte) error {
		for _, v := range values {
			to[turn].SendAsync(ctx, &client.ProducerMessage{Payload: v}, func(_ client.MessageID, _ *client.ProducerMessage, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
		}
		turn = (turn + 1) % partitions
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
	return write, c.Close, nil
}

// producer retries for a while: on a busy machine a broker needs long for its first topics.
func producer(ctx context.Context, c client.Client, topic string, delay time.Duration) (client.Producer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		p, err := c.CreateProducer(client.ProducerOptions{Topic: topic, SendTimeout: -1, BatchingMaxPublishDelay: delay})
		if err == nil {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(300 * time.Millisecond):
		}
	}
}
