// Command fill starts a RocketMQ, writes the benchmark's topics into it, prints its name
// server's address and ends when it is interrupted.
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

	"github.com/headrace/headrace/internal/proof/testbroker"
)

const (
	queues = 4
	atOnce = 1000 // records of a batch
	width  = 125  // float32
)

func main() {
	floats := flag.Int("floats", 0, "records of the topic floats: 125 float32 each")
	tsv := flag.String("tsv", "", "file whose lines are the records of the topic tsv")
	wide := flag.Bool("wide", false, "let an answer hold 1,024 messages or 4 MiB, not 32 or 256 KiB")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *floats, *tsv, *wide); err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, floats int, tsv string, wide bool) error {
	o := testbroker.RocketMQOptions{HeapMiB: 512, Set: map[string]string{"mappedFileSizeCommitLog": "268435456", "accessMessageInMemoryMaxRatio": "95"}}
	if wide {
		for _, where := range []string{"InMemory", "InDisk"} {
			o.Set["maxTransferCountOnMessage"+where], o.Set["maxTransferBytesOnMessage"+where] = "1024", "4194304"
		}
	}
	b, err := testbroker.StartRocketMQ(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	if floats > 0 {
		rng, left := rand.New(rand.NewPCG(1, 1)), floats
		if err := fill(ctx, b, "floats", func() ([]byte, error) {
			if left--; left < 0 {
				return nil, io.EOF
			}
			v := make([]byte, 0, 4*width)
			for range width {
				v, _ = binary.Append(v, binary.LittleEndian, rng.Float32())
			}
			return v, nil
		}); err != nil {
			return err
		}
	}
	if tsv != "" {
		f, err := os.Open(tsv)
		if err != nil {
			return err
		}
		defer f.Close()
		in := bufio.NewReaderSize(f, 1<<20)
		if err := fill(ctx, b, "tsv", func() ([]byte, error) {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return nil, err
			}
			return line[:len(line)-1], nil
		}); err != nil {
			return err
		}
	}
	fmt.Println(b.NameServer())
	<-ctx.Done()
	return nil
}

// fill writes batches to one queue after the other.
func fill(ctx context.Context, b *testbroker.RocketMQ, topic string, next func() ([]byte, error)) error {
	if err := b.CreateTopic(ctx, topic, queues); err != nil {
		return err
	}
	a := b.NewAppender(topic)
	defer a.Close()
	var ends [queues]int64
	for q := 0; ; q = (q + 1) % queues {
		var values [][]byte
		for len(values) < atOnce {
			v, err := next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			values = append(values, v)
		}
		if len(values) == 0 {
			return nil
		}
		if err := a.Append(ctx, q, ends[q], values, func() {}); err != nil {
			return err
		}
		ends[q] += int64(len(values))
	}
}
