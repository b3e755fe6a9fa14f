// Command lease measures what one master can do: lease+ack pairs per second. Each pair is granted, then
// acked, then answered after the fsync of its batch. Master and client are two processes on this machine
// and speak gRPC over TCP on loopback. The master is the real one (core, loop, committer, pebble in a
// folder on disk), with 10,000 partitions.
//
// The client builds and reads its messages by hand, so that it takes little of
// the processors that it shares with the master.
//
//	batched      8 streams, batches of 100: a message acks 100 leases and asks for 100
//	batched10    the same with 10
//	single       8 streams, one lease a message, up to 4 messages outstanding
//	single_1     the same with 1 outstanding
//
// The last line printed is one JSON object; each figure is the median of the
// repeats.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"
)

const (
	streams    = 8
	partitions = 10_000
	leaseUnits = 100
)

type mode struct {
	name        string
	batch       int // leases in one message
	outstanding int // messages outstanding on one stream
}

var modes = []mode{
	{"batched", 100, 4},
	{"batched10", 10, 4},
	{"single", 1, 4},
	{"single_1", 1, 1},
}

func main() {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serveIn(dir); err != nil {
			fmt.Fprintln(os.Stderr, "master:", err)
			os.Exit(1)
		}
		return
	}
	repeats := flag.Int("repeats", 5, "runs of each mode")
	length := flag.Duration("time", 2*time.Second, "length of one run")
	dir := flag.String("dir", "", "folder on the disk to measure (default: a temporary one)")
	profile := flag.String("cpuprofile", "", "file for the master's CPU profile")
	only := flag.String("mode", "", "this mode only")
	flag.Parse()
	if err := bench(*dir, *profile, *only, *repeats, *length); err != nil {
		fmt.Fprintln(os.Stderr, "bench-lease:", err)
		os.Exit(1)
	}
}

func bench(dir, profile, only string, repeats int, length time.Duration) error {
	dir, err := os.MkdirTemp(dir, "headrace-bench-lease-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("master with %d partitions in %s, %d CPUs\n", partitions, dir, runtime.NumCPU())
	m, err := startServer(dir, profile)
	if err != nil {
		return err
	}
	defer m.stop()

	synced, err := fsyncTime(dir)
	if err != nil {
		return err
	}
	out := map[string]any{"fsync_ms": round3(synced.Seconds() * 1e3), "streams": streams, "partitions": partitions, "cpus": runtime.NumCPU(), "repeats": repeats, "seconds": length.Seconds()}
	var answered int64
	for _, mo := range modes {
		if only != "" && only != mo.name {
			continue
		}
		var rates, p99s []float64
		for i := range repeats {
			r, err := run(m.addr, mo, length)
			if err != nil {
				return fmt.Errorf("%s: %w", mo.name, err)
			}
			answered += r.total
			rates, p99s = append(rates, r.rate), append(p99s, r.p99.Seconds()*1e3)
			fmt.Printf("%-10s %d/%d  %9.0f pairs/s   grant p50 %.2f ms  p99 %.2f ms\n", mo.name, i+1, repeats, r.rate,
				r.p50.Seconds()*1e3, r.p99.Seconds()*1e3)
		}
		out[mo.name] = math.Round(median(rates))
		out[mo.name+"_range"] = []float64{math.Round(slices.Min(rates)), math.Round(slices.Max(rates))}
		out[mo.name+"_grant_p99_ms"] = round3(median(p99s))
	}
	if v, ok := out["single_grant_p99_ms"]; ok {
		out["grant_p99_ms"] = v
	}
	acked, commits, err := m.counts()
	if err != nil {
		return err
	}
	if acked != answered*leaseUnits {
		return fmt.Errorf("the master settled %d units, and %d were answered: the figures mean nothing", acked, answered*leaseUnits)
	}
	out["master_cpu_us_per_pair"] = round3(m.cpu.Seconds() * 1e6 / float64(max(1, answered)))
	out["pairs_per_commit"] = round3(float64(answered) / float64(max(1, commits)))
	line, err := json.Marshal(out)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}

const fsyncs = 200

// fsyncTime is the time that the disk takes to make 4 KiB durable: the median of some appends to a file in
// dir, each with an fsync. An answer after an fsync cannot be faster for one caller that waits.
func fsyncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var took []float64
	page := make([]byte, 4096)
	for range fsyncs {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	return time.Duration(median(took) * float64(time.Second)), nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }
