// Command broker-rocketmq runs a real RocketMQ in the foreground: make broker-rocketmq.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func main() {
	var opts testbroker.RocketMQOptions
	secure := flag.Bool("secure", false, "require signed requests, and offer TLS")
	topic := flag.String("topic", "", "create this topic")
	queues := flag.Int("queues", 2, "queues of the topic on each broker")
	flag.IntVar(&opts.Brokers, "brokers", 1, "how many brokers")
	flag.Parse()
	opts.ACL, opts.TLS = *secure, *secure
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opts, *topic, *queues); err != nil {
		fmt.Fprintln(os.Stderr, "broker-rocketmq:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts testbroker.RocketMQOptions, topic string, queues int) error {
	b, err := testbroker.StartRocketMQ(ctx, opts)
	if err != nil {
		return err
	}
	defer b.Close()
	if topic != "" {
		if err := b.CreateTopic(ctx, topic, queues); err != nil {
			return err
		}
	}
	fmt.Println(b.NameServer())
	fmt.Fprintf(os.Stderr, "RocketMQ %s: name server %s, broker %s in %s; Ctrl-C ends it and removes its folder\n",
		testbroker.RocketMQVersion, b.NameServer(), b.Addr(), b.Dir())
	if opts.ACL {
		fmt.Fprintf(os.Stderr, "access key %s, secret key %s, authority %s\n", testbroker.User, testbroker.Password, b.Names.CA())
	}
	select {
	case <-ctx.Done():
		return b.Kill()
	case <-b.Exited():
		return fmt.Errorf("the broker ended by itself")
	}
}
