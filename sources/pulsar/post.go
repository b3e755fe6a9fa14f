package pulsar

import (
	"context"
	"errors"
	"sync"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
)

var _ sources.Poster = (*Source)(nil)

const postWithin = 30 * time.Second

// Post writes values to a topic of the same cluster, each with its key. It returns when the
// broker has all of them durably. After an error some of them may be there.
func (s *Source) Post(ctx context.Context, topic string, keys, values [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, postWithin)
	defer cancel()
	what := "topic " + topic + " for dead letters, at Pulsar " + s.o.Service
	c, err := s.connection()
	if err != nil {
		return err
	}
	p, err := c.CreateProducer(client.ProducerOptions{Topic: topic, SendTimeout: postWithin})
	if err != nil {
		return explain(ctx, what, err)
	}
	defer p.Close()
	var sent sync.WaitGroup
	errs := make([]error, len(values))
	for i := range values {
		sent.Add(1)
		p.SendAsync(ctx, &client.ProducerMessage{Key: string(keys[i]), Payload: values[i]}, func(_ client.MessageID, _ *client.ProducerMessage, err error) {
			errs[i] = err
			sent.Done()
		})
	}
	if err := p.FlushWithCtx(ctx); err != nil {
		return explain(ctx, what, err)
	}
	sent.Wait() // each has its answer, or its time has passed
	if err := errors.Join(errs...); err != nil {
		return explain(ctx, what, err)
	}
	return nil
}
