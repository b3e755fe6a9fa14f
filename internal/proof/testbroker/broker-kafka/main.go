// Command broker-kafka runs a real Kafka in the foreground: make broker-kafka.
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
	secure := flag.Bool("secure", false, "also listen with SASL and TLS")
	topic := flag.String("topic", "", "create this topic")
	partitions := flag.Int("partitions", 2, "its partitions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *secure, *topic, *partitions); err != nil {
		fmt.Fprintln(os.Stderr, "broker-kafka:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, secure bool, topic string, partitions int) error {
	b, err := testbroker.StartKafka(ctx, testbroker.Options{Secure: secure, Fast: true})
	if err != nil {
		return err
	}
	defer b.Close()
	if topic != "" {
		if err := b.CreateTopic(ctx, topic, partitions, nil); err != nil {
			return err
		}
	}
	fmt.Println(b.Addr())
	fmt.Fprintf(os.Stderr, "Kafka %s in %s; Ctrl-C ends it and removes its folder\n", testbroker.KafkaVersion, b.Dir())
	if secure {
		fmt.Fprintf(os.Stderr, "SASL %s, TLS %s, both %s; user %s, password %s, authority %s\n",
			b.SASLAddr(), b.TLSAddr(), b.SASLTLSAddr(), testbroker.User, testbroker.Password, b.CA())
	}
	select {
	case <-ctx.Done():
		return b.Stop()
	case <-b.Exited():
		return fmt.Errorf("the broker ended by itself")
	}
}
