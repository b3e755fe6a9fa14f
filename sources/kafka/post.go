package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const postWithin = 30 * time.Second

// Post writes values to a topic of the same cluster, each with its key. It returns when
// all replicas in sync have them. After an error some of them may be there.
func (s *Source) Post(ctx context.Context, topic string, keys, values [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, postWithin)
	defer cancel()
	tr := &kafkago.Transport{ClientID: clientID, MetadataTTL: metadataTTL, MetadataTopics: []string{topic},
		IdleTimeout: idleConns, Dial: dial, DialTimeout: dialWithin, TLS: s.o.TLS, SASL: s.o.SASL}
	defer tr.CloseIdleConnections()
	w := &kafkago.Writer{Addr: kafkago.TCP(s.o.Brokers...), Topic: topic, Transport: tr, Balancer: &kafkago.Hash{},
		RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, MaxAttempts: 3, WriteTimeout: answerWithin, ReadTimeout: answerWithin}
	messages := make([]kafkago.Message, len(values))
	for i := range values {
		messages[i] = kafkago.Message{Key: keys[i], Value: values[i]}
	}
	err := w.WriteMessages(ctx, messages...)
	if e := w.Close(); err == nil {
		err = e
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kafkago.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s for dead letters: %w: create it, or allow the user to see it", topic, err)
	}
	return fmt.Errorf("topic %s for dead letters: %w", topic, s.client.explain(ctx, err))
}
