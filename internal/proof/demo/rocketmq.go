package demo

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headrace/headrace/examples/clicks"
	"github.com/headrace/headrace/internal/proof/demo/produce"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
)

var rocketmqQueue = queue{
	name: "Apache RocketMQ " + testbroker.RocketMQVersion,
	start: func(ctx context.Context) (broker, error) {
		b, err := testbroker.StartRocketMQ(ctx, testbroker.RocketMQOptions{})
		return rocketmqBroker{b}, err
	},
	module: "numpy", pip: "numpy", program: clicks.RocketMQTrainer,
	rivals: []rival{{name: "group", kind: "consumer", title: "consumer group",
		about: "the official Go client through a pipe, one group of push consumers, automatic commits (the library's defaults)"}},
}

type rocketmqBroker struct{ *testbroker.RocketMQ }

func (b rocketmqBroker) createTopic(ctx context.Context, name string, partitions int) error {
	return b.CreateTopic(ctx, name, partitions)
}

func (b rocketmqBroker) where() string     { return b.Addr() }
func (b rocketmqBroker) partition() string { return "%s/" + b.Name() + "/%d" }
func (b rocketmqBroker) places() string    { return "" }

func (b rocketmqBroker) writer(topic string) (produce.Writer, error) {
	return b.NewAppender(topic), nil
}

func (b rocketmqBroker) source(topic string) string {
	return fmt.Sprintf("rocketmq: {name_servers: [%q], topic: %s, start: earliest, end: never}", b.NameServer(), topic)
}

func (b rocketmqBroker) group(topic, name string) []string {
	us, err := os.Executable()
	if err != nil {
		us = "headrace" // without an executable, Run has already ended
	}
	return []string{"--consumer", fmt.Sprintf("'%s' demo push-consumer", us), "--name-server", b.NameServer(), "--topic", topic, "--broker", b.Name(), "--group", name}
}

func (b rocketmqBroker) groupDone(ctx context.Context, topic, name string, heads []int64) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for p, head := range heads {
		a, err := b.Client().Call(ctx, b.Addr(), remoting.QueryOffset(remoting.Queue{Topic: topic, ID: p}, name))
		if err != nil {
			return false
		}
		if at, err := remoting.OffsetOf(a); err != nil || at != head {
			return false
		}
	}
	return true
}
