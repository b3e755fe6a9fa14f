package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// ProducedName is the file beside the truth in which a producer writes down what it has put into the topic:
// one Produced per line.
const ProducedName = "produced.jsonl"

// Produced is a run of records that are in a partition now. Times are CLOCK_MONOTONIC in ns.
type Produced struct {
	Partition int   `json:"partition"`
	First     int64 `json:"first"` // offset
	Records   int   `json:"records"`
	Sent      int64 `json:"sent_ns"`  // given to the client
	Acked     int64 `json:"acked_ns"` // known to be in the topic
}

// Live is about records that were produced during training.
type Live struct {
	ProducedSeconds float64 `json:"produced_s"` // from the first record's production to the last one's
	BehindSeconds   float64 `json:"behind_s"`   // from the last record's production to the last application
	Freshness       `json:"freshness"`
}

// Freshness is the time from a record's production to its first application.
type Freshness struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// readProduced gives the time at which each record was sent. It checks that the producer wrote every record
// exactly once, where the truth says.
func readProduced(truthDir string, truth *clicklog.Truth) (sent []int64, err error) {
	f, err := os.Open(filepath.Join(truthDir, ProducedName))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sent = make([]int64, truth.Records)
	next := make([]int64, truth.Topic.Partitions)
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var p Produced
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", ProducedName, err)
		}
		if p.Partition < 0 || p.Partition >= len(next) || p.First != next[p.Partition] || p.Records < 1 {
			return nil, fmt.Errorf("%s: %d records at offset %d of partition %d do not follow", ProducedName, p.Records, p.First, p.Partition)
		}
		next[p.Partition] += int64(p.Records)
		for offset := p.First; offset < next[p.Partition]; offset++ {
			n := truth.Topic.Number(p.Partition, offset)
			if n >= len(sent) {
				return nil, fmt.Errorf("%s: offset %d of partition %d is after the end of the log", ProducedName, offset, p.Partition)
			}
			sent[n] = p.Sent
		}
	}
	if heads := truth.Topic.Heads(truth.Records); !slices.Equal(next, heads) {
		return nil, fmt.Errorf("%s: the partitions end at %d, and must end at %d", ProducedName, next, heads)
	}
	return sent, nil
}

// first gives the time at which each record was first certainly applied; 0: never.
func first(records int, journals []*Journal) []int64 {
	at := make([]int64, records)
	for _, j := range journals {
		for _, b := range j.Batches {
			if b.Applied == 0 {
				continue
			}
			for _, n := range b.Records {
				if n >= 0 && (at[n] == 0 || b.Applied < at[n]) {
					at[n] = b.Applied
				}
			}
		}
	}
	return at
}

// afterBroker adds to each killed broker the time at which the first record that was produced after it
// was applied.
func afterBroker(kills []Kill, sent []int64, journals []*Journal) []Kill {
	kills = slices.Clone(kills)
	for i := range kills {
		k := &kills[i]
		if k.What != "broker" {
			continue
		}
		for n, at := range first(len(sent), journals) {
			if sent[n] > k.Back && at != 0 && (k.Released == 0 || at < k.Released) {
				k.Released = at
			}
		}
	}
	return kills
}

func freshness(sent []int64, journals []*Journal) Freshness {
	var ages []int64
	for n, at := range first(len(sent), journals) {
		if at != 0 {
			ages = append(ages, at-sent[n])
		}
	}
	if len(ages) == 0 {
		return Freshness{}
	}
	slices.Sort(ages)
	of := func(share float64) float64 { return float64(ages[int(share*float64(len(ages)-1))]) / 1e6 }
	return Freshness{P50: of(0.5), P99: of(0.99), Max: of(1)}
}

func live(sent []int64, journals []*Journal) *Live {
	begin, end := slices.Min(sent), slices.Max(sent)
	return &Live{
		ProducedSeconds: float64(end-begin) / 1e9,
		BehindSeconds:   float64(slices.Max(first(len(sent), journals))-end) / 1e9,
		Freshness:       freshness(sent, journals),
	}
}
