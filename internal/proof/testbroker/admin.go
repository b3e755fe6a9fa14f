package testbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// topicWithin is long because a busy machine may stand still.
const topicWithin = 3 * time.Minute

// CreateTopic creates a topic and returns when every partition has a leader that answers.
func (b *Broker) CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error {
	return b.createTopic(ctx, kafkago.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}, partitions, config)
}

// CreateTopicOn says which brokers have each partition. The first one is its leader.
func (b *Broker) CreateTopicOn(ctx context.Context, name string, replicas [][]int, config map[string]string) error {
	t := kafkago.TopicConfig{Topic: name, NumPartitions: -1, ReplicationFactor: -1}
	for i, r := range replicas {
		t.ReplicaAssignments = append(t.ReplicaAssignments, kafkago.ReplicaAssignment{Partition: i, Replicas: r})
	}
	return b.createTopic(ctx, t, len(replicas), config)
}

func (b *Broker) createTopic(ctx context.Context, t kafkago.TopicConfig, partitions int, config map[string]string) error {
	client, done := b.Client()
	defer done()
	name := t.Topic
	for k, v := range config {
		t.ConfigEntries = append(t.ConfigEntries, kafkago.ConfigEntry{ConfigName: k, ConfigValue: v})
	}
	for began := time.Now(); ; {
		res, err := client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{t}})
		if err != nil {
			return err
		}
		if err = res.Errors[name]; err == nil {
			return b.waitForTopic(ctx, name, partitions)
		}
		// A broker that stands still for two seconds counts as lost, until it is heard again.
		if !errors.Is(err, kafkago.InvalidReplicationFactor) || time.Since(began) > topicWithin {
			return fmt.Errorf("creating topic %s: %w", name, err)
		}
		if err := wait(ctx, err); err != nil {
			return err
		}
	}
}

// AddPartitions adds partitions to a topic until it has `partitions`.
func (b *Broker) AddPartitions(ctx context.Context, name string, partitions int) error {
	client, done := b.Client()
	defer done()
	res, err := client.CreatePartitions(ctx, &kafkago.CreatePartitionsRequest{
		Topics: []kafkago.TopicPartitionsConfig{{Name: name, Count: int32(partitions)}}})
	if err != nil {
		return err
	}
	if err := res.Errors[name]; err != nil {
		return fmt.Errorf("growing topic %s: %w", name, err)
	}
	return b.waitForTopic(ctx, name, partitions)
}

func (b *Broker) waitForTopic(ctx context.Context, name string, partitions int) error {
	ask := map[string][]kafkago.OffsetRequest{}
	for p := range partitions {
		ask[name] = append(ask[name], kafkago.LastOffsetOf(p))
	}
	ctx, cancel := context.WithTimeout(ctx, topicWithin)
	defer cancel()
	for {
		client, done := b.Client() // an old client may know an old layout
		err := b.leads(ctx, client, ask)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s: %w", name, err)
		case <-time.After(pollEvery):
		}
	}
}

// DeleteTopic deletes a topic.
func (b *Broker) DeleteTopic(ctx context.Context, name string) error {
	client, done := b.Client()
	defer done()
	res, err := client.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{name}})
	if err != nil {
		return err
	}
	return res.Errors[name]
}

// DeleteRecords deletes the records of a partition below offset; -1 deletes all.
func (b *Broker) DeleteRecords(ctx context.Context, topic string, partition int, offset int64) error {
	tr := &kafkago.Transport{}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(ctx, kafkago.TCP(b.Addr()), &deleteRequest{
		Topics:  []deleteTopic{{Name: topic, Partitions: []deletePartition{{Partition: int32(partition), Offset: offset}}}},
		Timeout: 10_000,
	})
	if err != nil {
		return err
	}
	topics := res.(*deleteResponse).Topics
	if len(topics) == 0 || len(topics[0].Partitions) == 0 {
		return errors.New("deleting records: the broker's answer does not have the partition")
	}
	if code := topics[0].Partitions[0].ErrorCode; code != 0 {
		return fmt.Errorf("deleting records of %s/%d below %d: %w", topic, partition, offset, kafkago.Error(code))
	}
	return nil
}

// kafka-go does not know DeleteRecords; these are the messages of its version 0.
type (
	deleteRequest struct {
		Topics  []deleteTopic `kafka:"min=v0,max=v0"`
		Timeout int32         `kafka:"min=v0,max=v0"`
	}
	deleteTopic struct {
		Name       string            `kafka:"min=v0,max=v0"`
		Partitions []deletePartition `kafka:"min=v0,max=v0"`
	}
	deletePartition struct {
		Partition int32 `kafka:"min=v0,max=v0"`
		Offset    int64 `kafka:"min=v0,max=v0"`
	}
	deleteResponse struct {
		Throttle int32           `kafka:"min=v0,max=v0"`
		Topics   []deletedTopics `kafka:"min=v0,max=v0"`
	}
	deletedTopics struct {
		Name       string             `kafka:"min=v0,max=v0"`
		Partitions []deletedPartition `kafka:"min=v0,max=v0"`
	}
	deletedPartition struct {
		Partition int32 `kafka:"min=v0,max=v0"`
		LowWater  int64 `kafka:"min=v0,max=v0"`
		ErrorCode int16 `kafka:"min=v0,max=v0"`
	}
)

func (*deleteRequest) ApiKey() protocol.ApiKey  { return protocol.DeleteRecords }
func (*deleteResponse) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

// Broker: a test broker is the only one, so it gets the request.
func (*deleteRequest) Broker(c protocol.Cluster) (protocol.Broker, error) {
	for _, b := range c.Brokers {
		return b, nil
	}
	return protocol.Broker{}, errors.New("no broker")
}

func init() { protocol.Register(&deleteRequest{}, &deleteResponse{}) }

// Leader is the broker that leads a partition (0 if none does now) and the replicas that are in sync.
func (b *Broker) Leader(ctx context.Context, topic string, partition int) (leader int, inSync []int, err error) {
	client, done := b.Client() // an old client may know an old layout
	defer done()
	meta, err := client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, nil, err
	}
	for _, t := range meta.Topics {
		for _, p := range t.Partitions {
			if t.Name == topic && p.ID == partition {
				for _, o := range p.Isr {
					inSync = append(inSync, o.ID)
				}
				return max(0, p.Leader.ID), inSync, nil
			}
		}
	}
	return 0, nil, fmt.Errorf("the broker does not know %s/%d", topic, partition)
}
