package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

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
		if to[p], err = producer(ctx, c, fmt.Sprintf("%s-partition-%d", topic, p)); err != nil {
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

// producer tries for a while: on a busy machine a broker's first topics take long.
func producer(ctx context.Context, c client.Client, topic string) (client.Producer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		p, err := c.CreateProducer(client.ProducerOptions{Topic: topic, SendTimeout: -1})
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
