// Command broker-pulsar runs a real Pulsar in the foreground: make broker-pulsar.
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
	secure := flag.Bool("secure", false, "listen with TLS, and require a token")
	topic := flag.String("topic", "", "create this topic in public/default")
	partitions := flag.Int("partitions", 2, "partitions of the topic; 0: a topic without partitions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *secure, *topic, *partitions); err != nil {
		fmt.Fprintln(os.Stderr, "broker-pulsar:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, secure bool, topic string, partitions int) error {
	b, err := testbroker.StartPulsar(ctx, testbroker.PulsarOptions{Secure: secure})
	if err != nil {
		return err
	}
	defer b.Close()
	if topic != "" {
		if err := b.CreateTopic(ctx, topic, partitions); err != nil {
			return err
		}
	}
	fmt.Println(b.URL(), b.AdminURL())
	fmt.Fprintf(os.Stderr, "Pulsar %s in %s; Ctrl-C ends it and removes its folder\n", testbroker.PulsarVersion, b.Dir())
	if secure {
		fmt.Fprintf(os.Stderr, "token in %s, authority %s, a client's certificate and key %s\n", b.TokenFile(), b.CA(), b.ClientCert())
	}
	select {
	case <-ctx.Done():
		return b.Stop()
	case <-b.Exited():
		return fmt.Errorf("the broker ended by itself")
	}
}
