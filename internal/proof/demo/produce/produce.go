package produce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

// Writer writes each record of a topic once, even if the broker is killed. Nothing else may write to the
// topic. A Writer is used by one goroutine.
type Writer interface {
	// Append appends values to a partition that holds end records. It tries until they are there or ctx ends,
	// and calls sending before each try.
	Append(ctx context.Context, partition int, end int64, values [][]byte, sending func()) error
	// End asks how many records a partition holds until the broker answers or ctx ends.
	End(ctx context.Context, partition int) (int64, error)
	Close()
}

// Producer writes a log into its topic, once.
type Producer struct {
	Writer   Writer             // Run closes it
	Manifest *clicklog.Manifest // it has a topic, which is empty
	LogDir   string
	TruthDir string  // report.ProducedName is written into it
	Rate     float64 // records/s

	records atomic.Int64
}

// Records is how many records are in the topic so far.
func (p *Producer) Records() int { return int(p.records.Load()) }

// Run returns when every record is in the topic, or ctx ends. While the broker does not answer, it tries
// again.
func (p *Producer) Run(ctx context.Context) (err error) {
	log, err := os.Create(filepath.Join(p.TruthDir, report.ProducedName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	lines := p.Manifest.OpenLines(p.LogDir)
	defer func() { err = errors.Join(err, lines.Close()) }()
	to := p.Writer
	defer to.Close()

	topic, ends := p.Manifest.Topic, make([]int64, p.Manifest.Topic.Partitions)
	out := json.NewEncoder(log)
	start := time.Now()
	for partition := 0; ; partition = (partition + 1) % len(ends) {
		stripe, err := nextStripe(lines, topic.Stripe)
		if err != nil {
			return err
		}
		if len(stripe) == 0 {
			return p.complete(ctx, to, ends)
		}
		due := start.Add(time.Duration(float64(p.Records()+len(stripe)) / p.Rate * float64(time.Second)))
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		var sent int64 // when the request was sent that wrote the records; it is sent again after a failure
		if err := to.Append(ctx, partition, ends[partition], stripe, func() { sent = monotonic() }); err != nil {
			return err
		}
		run := report.Produced{Partition: partition, First: ends[partition], Records: len(stripe), Sent: sent, Acked: monotonic()}
		if err := out.Encode(run); err != nil {
			return err
		}
		ends[partition] += int64(len(stripe))
		p.records.Add(int64(len(stripe)))
	}
}

// nextStripe returns the next records, and none at the end of the log.
func nextStripe(lines *clicklog.Lines, most int) (stripe [][]byte, err error) {
	for len(stripe) < most {
		line, err := lines.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		stripe = append(stripe, line)
	}
	return stripe, nil
}

// complete asks the broker whether the topic holds what the truth says.
func (p *Producer) complete(ctx context.Context, to Writer, ends []int64) error {
	want := p.Manifest.Topic.Heads(p.Manifest.Records)
	if !slices.Equal(ends, want) {
		return fmt.Errorf("topic %s: its partitions were produced up to %d, want %d", p.Manifest.Topic.Name, ends, want)
	}
	for k, end := range ends {
		at, err := to.End(ctx, k)
		if err != nil {
			return err
		}
		if at != end {
			return fmt.Errorf("%s ends at offset %d, and %d records were produced", p.Manifest.Topic.Partition(k), at, end)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// monotonic is CLOCK_MONOTONIC in ns, the clock of Python's time.monotonic_ns().
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("this system has no monotonic clock: %w", err)) // not on Linux
	}
	return ts.Nano()
}
