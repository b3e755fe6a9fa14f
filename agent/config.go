package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent/replica"
	"github.com/headrace/headrace/flashckpt/bucket"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/sources"
)

const (
	prefetch = time.Second          // how far ahead of a trainer to read, in time of its own pace
	linger   = 5 * time.Millisecond // how long a full batch waits for more before its frame leaves
)

// Defaults of Config.
const (
	defaultBufferBytes = 512 << 20
	defaultShareFrom   = 64 << 10
)

// Opener opens the source of a dataset for reading. The agent closes it when
// the last stream that reads it has ended.
type Opener func(ctx context.Context, spec *dataset.Spec) (sources.Source, error)

// Config is what an agent is told. Zero values mean the defaults.
type Config struct {
	Name string // unique in the job, stable over restarts; default: the host's name
	Job  string // empty: whatever the master runs

	Conn   grpc.ClientConnInterface // to the master; the caller closes it
	Master string                   // its address, for messages

	Socket string // path of the trainers' socket, at most 107 bytes
	Open   Opener
	// Checkpoints opens those that lie in buckets; nil: none can be.
	Checkpoints *bucket.Places
	// Replicas are copies of checkpoints in memory; nil: the agent knows no other nodes.
	Replicas *replica.Node

	BufferBytes int64 // decoded and not yet delivered, all streams together
	ShareFrom   int   // bytes of a frame from which on shared memory is better than the socket

	GPUs    []string // "0: NVIDIA H200, 139 GiB"
	Version string

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept, not exported
}

// withDefaults checks c and fills it in. Errors name the field.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("agent: name is not set and the host has none: %w", err)
		}
		c.Name = host
	}
	if c.Conn == nil {
		return c, errors.New("agent: no Conn: it has no connection to a master")
	}
	if err := link.CheckSocketPath(c.Socket); err != nil {
		return c, fmt.Errorf("agent: socket: %w", err)
	}
	if c.Open == nil {
		return c, errors.New("agent: no Open: it can read no source")
	}
	if c.Checkpoints == nil {
		c.Checkpoints = bucket.None()
	}
	if c.BufferBytes < 0 {
		return c, fmt.Errorf("agent: buffer_bytes is %d, and may not be negative", c.BufferBytes)
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = defaultBufferBytes
	}
	if c.ShareFrom == 0 {
		c.ShareFrom = defaultShareFrom
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
