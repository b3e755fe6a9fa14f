package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/shardsvc/cut"
)

// pulsarLedger is small, so that a topic has many ledgers.
const pulsarLedger = 60 // entries

var pulsarCodecs = []client.CompressionType{client.NoCompression, client.LZ4, client.ZLib, client.ZSTD, client.SNAPPY}

type pulsar struct{ *testbroker.Pulsar }

func startPulsar(ctx context.Context) (queue, error) {
	b, err := testbroker.StartPulsar(ctx, testbroker.PulsarOptions{EntriesPerLedger: pulsarLedger})
	if err != nil {
		return nil, err
	}
	return pulsar{b}, b.Deduplicate(ctx)
}

func (k pulsar) where() string { return k.URL() }

func (k pulsar) createTopic(ctx context.Context, name string, partitions int) error {
	return k.CreateTopic(ctx, name, partitions)
}

func (k pulsar) writer(in *input) (writer, error) {
	to, err := testbroker.NewPulsarAppender(k.Pulsar, in.name)
	return pulsarWriter{in, to}, err
}

// pulsarWriter writes batches of random sizes. Each partition has its own codec. Where a record is, is
// read back from the topic: after a batch was sent twice, the broker's answer does not tell it.
type pulsarWriter struct {
	in *input
	to *testbroker.PulsarAppender
}

func (w pulsarWriter) append(ctx context.Context, r *rand.Rand, partition int, end int64, values [][]byte, put func(int, string, int64)) error {
	w.to.Codec = pulsarCodecs[r.IntN(len(pulsarCodecs))]
	for done := 0; done < len(values); {
		n := min(len(values)-done, 1+r.IntN(100))
		if err := w.to.Append(ctx, partition, end, values[done:done+n], func() {}); err != nil {
			return err
		}
		places, err := w.to.Places(ctx, partition, end, n)
		if err != nil {
			return err
		}
		for i, p := range places {
			put(done+i, ledgerOf(w.in, partition, p.Ledger), p.Entry<<20|int64(p.Index))
		}
		done, end = done+n, end+int64(n)
	}
	return nil
}

func (w pulsarWriter) close() { w.to.Close() }

// ledgerOf is the name of a ledger in a cut.
func ledgerOf(in *input, partition int, ledger int64) string {
	return fmt.Sprintf("%s-partition-%d ledger %d", in.name, partition, ledger)
}

func (k pulsar) source(in *input) string {
	end := "latest"
	if in.live {
		end = "never"
	}
	return fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s, start: earliest, end: %s, subscription: %s}",
		k.URL(), k.AdminURL(), in.name, end, in.group())
}

// sizes: in the offsets of Pulsar, an entry takes 1 MiB.
func (k pulsar) sizes() (lease, block string) { return "initial: 2MiB, min: 1MiB", "3MiB" }
func (k pulsar) exact() bool                  { return false }

func (k pulsar) segment(_ *input, _ *cut.Partition, r audit.Range) string { return r.Name }

func (k pulsar) told(ctx context.Context, in *input) []int64 {
	all := make([]int64, in.partitions)
	for p := range all {
		text, err := k.Admin(ctx, "GET", fmt.Sprintf("persistent/public/default/%s-partition-%d/internalStats", in.name, p), nil)
		var stats struct {
			Cursors map[string]struct {
				Done string `json:"markDeletePosition"` // the last entry that is acknowledged
			} `json:"cursors"`
		}
		if err != nil || json.Unmarshal(text, &stats) != nil {
			return nil
		}
		all[p] = -1
		var ledger, entry int64
		if c, ok := stats.Cursors[in.group()]; ok {
			if _, err := fmt.Sscanf(c.Done, "%d:%d", &ledger, &entry); err != nil {
				return nil
			}
			all[p] = in.before(p, ledger, (entry+1)<<20)
		}
	}
	return all
}

// before counts the records of a partition that are before a place in it.
func (in *input) before(partition int, ledger, at int64) (n int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	prefix := strings.TrimSuffix(ledgerOf(in, partition, 0), "0")
	for segment, places := range in.places {
		number, ok := strings.CutPrefix(segment, prefix)
		if !ok {
			continue
		}
		switch l, _ := strconv.ParseInt(number, 10, 64); {
		case l < ledger:
			n += int64(len(places))
		case l == ledger:
			for _, x := range places {
				if x.at < at {
					n++
				}
			}
		}
	}
	return n
}
