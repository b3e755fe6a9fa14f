package demo

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/internal/proof/demo/produce"
)

// queue is a kind of broker. The demo can read a topic of it, and compare with the vendor's own consumers.
type queue struct {
	name  string // "Apache Kafka 4.1.1"
	start func(context.Context) (broker, error)

	// The consumer groups to compare with: the Python module that their trainers import, the package to
	// install for it, the program, and the ways in which it runs at the same time.
	module, pip string
	program     []byte
	rivals      []rival
}

// rival is one consumer group to compare with.
type rival struct {
	name  string   // of the folder of its journals, and of the group at the broker
	kind  string   // of its processes
	title string   // title of its column in the report
	about string   // what it is and how it is set
	args  []string // arguments of its trainers, after those that all have
}

// queues are the kinds of brokers, by --source. Add a kind with one entry here and one file.
var queues = map[string]queue{Kafka: kafkaQueue, Pulsar: pulsarQueue, RocketMQ: rocketmqQueue}

// broker is a broker that runs. It can be killed and started again on the same folder.
type broker interface {
	Start(ctx context.Context) error
	Kill() error
	Close() error
	PID() int

	// createTopic creates an empty topic.
	createTopic(ctx context.Context, name string, partitions int) error
	// where is its address, for people.
	where() string
	// partition is the format of the names that readers give to partitions, from the topic's name and
	// a number.
	partition() string
	// writer opens a writer to the topic, which writes each record once.
	writer(topic string) (produce.Writer, error)
	// source is the source's part of the dataset's spec. It reads from the earliest record on, without
	// an end.
	source(topic string) string
	// places is the column that holds the place of a record, if offsets do not say it; else "".
	places() string
	// group gives the arguments with which the trainers of a group find the topic and the group.
	group(topic, name string) []string
	// groupDone reports whether the group has told the broker that it is done with every record. It is
	// false if the broker does not answer.
	groupDone(ctx context.Context, topic, name string, heads []int64) bool
}

// live reports whether a source is a topic that is written while it is read.
func live(source string) bool {
	_, ok := queues[source]
	return ok
}

func topicYAML(b broker) string {
	return fmt.Sprintf("name: %s\n%s\n", datasetName, b.source(topicName)) + decodeYAML() + b.places()
}
