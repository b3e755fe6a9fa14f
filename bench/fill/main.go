package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
)

const (
	partitions = 4
	width      = 125 // float32
)

// broker is a running broker.
type broker interface {
	// fill creates a topic and writes to it what next gives, until io.EOF.
	fill(ctx context.Context, topic string, next func() ([]byte, error)) error
	// writer creates a topic and gives a function that writes to its partitions in turn.
	writer(ctx context.Context, topic string, partitions int) (write func(context.Context, [][]byte) error, end func(), err error)
	// address is the address for readers.
	address() string
	Close() error
}

func main() {
	kind := flag.String("broker", "rocketmq", "rocketmq or pulsar")
	floats := flag.Int("floats", 0, "records of the topic floats: 125 float32 each")
	tsv := flag.String("tsv", "", "file whose lines are the records of the topic tsv")
	rate := flag.Int("rate", 0, "records per second that are written to the topic events until the program ends; a record is the clock in ns and a number, int64 each")
	parts := flag.Int("partitions", 2, "partitions of the topic events")
	wide := flag.Bool("wide", false, "RocketMQ: let an answer hold 1,024 messages or 4 MiB, not 32 or 256 KiB")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kind, *floats, *tsv, *rate, *parts, *wide); err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kind string, floats int, tsv string, rate, parts int, wide bool) (err error) {
	var b broker
	switch kind {
	case "rocketmq":
		b, err = startRocketMQ(ctx, wide)
	case "pulsar":
		b, err = startPulsar(ctx)
	default:
		err = fmt.Errorf("-broker %q: use rocketmq or pulsar", kind)
	}
	if err != nil {
		return err
	}
	defer b.Close()
	if floats > 0 {
		if err := b.fill(ctx, "floats", randoms(floats)); err != nil {
			return err
		}
	}
	if tsv != "" {
		f, err := os.Open(tsv)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := b.fill(ctx, "tsv", lines(f)); err != nil {
			return err
		}
	}
	if rate > 0 {
		return trickle(ctx, b, rate, parts)
	}
	fmt.Println(b.address())
	<-ctx.Done()
	return nil
}

func randoms(left int) func() ([]byte, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	return func() ([]byte, error) {
		if left--; left < 0 {
			return nil, io.EOF
		}
		v := make([]byte, 0, 4*width)
		for range width {
			v, _ = binary.Append(v, binary.LittleEndian, rng.Float32())
		}
		return v, nil
	}
}

func lines(f io.Reader) func() ([]byte, error) {
	in := bufio.NewReaderSize(f, 1<<20)
	return func() ([]byte, error) {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		return line[:len(line)-1], nil
	}
}
