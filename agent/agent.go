package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent/feed"
	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

// ackDelay is how long acks wait for others: a message costs the master as much
// with one ack as with a hundred.
const ackDelay = 2 * time.Millisecond

// comeBack is how long a new agent on the socket of a dead one waits for living
// trainers before its first Hello. Later ones cost a second Hello.
const comeBack = 150 * time.Millisecond

// Agent is one node's agent. Make it with New, start it with Run.
type Agent struct {
	cfg   Config
	conn  grpc.ClientConnInterface
	own   *grpc.ClientConn // to close, if we dialed
	desk  *desk
	feed  *feed.Server
	ready chan struct{}
	met   bool // the master has answered this session's Hello; keepSession's own
}

// New checks the configuration and prepares the connection to the master. It
// opens nothing and starts nothing.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, conn: cfg.Conn, ready: make(chan struct{})}
	if a.conn == nil {
		if a.own, err = grpc.NewClient(cfg.Master, cfg.Dial...); err != nil {
			return nil, fmt.Errorf("agent: master %s: %w", cfg.Master, err)
		}
		a.conn = a.own
	}
	host, err := os.Hostname()
	if err != nil {
		host = cfg.Name
	}
	a.desk = newDesk(hold.Config{
		Prefetch: cfg.Prefetch, AckDelay: ackDelay,
		Hello: &pb.Hello{
			Protocol: link.Protocol, Job: cfg.Job, Agent: cfg.Name, Incarnation: rand.Uint64(), Version: cfg.Version,
			Host: host, Pid: int32(os.Getpid()), Gpus: cfg.GPUs,
		},
	})
	metrics, err := feed.NewMetrics(cfg.Registerer, func() int64 { return a.feed.Buffered() })
	if err != nil {
		return nil, fmt.Errorf("agent: metrics: %w", err)
	}
	a.feed = feed.NewServer(feed.Config{
		Socket: cfg.Socket, Agent: cfg.Name, Version: cfg.Version, Prefetch: cfg.Prefetch, Linger: cfg.Linger,
		BufferBytes: cfg.BufferBytes, ShareFrom: cfg.ShareFrom, Desk: a.desk, Metrics: metrics, Logger: cfg.Logger,
		Catalog: &catalog{client: pb.NewDatasetsClient(a.conn), open: cfg.Open, sources: map[string]*shared{}},
	})
	a.desk.srv = a.feed
	return a, nil
}

// Run serves trainers until ctx ends, and then returns nil after a graceful
// stop: the socket is gone, nothing of ours runs. Trainers are not ended: they
// look for an agent on the same path until their session's TTL has passed.
//
// Errors: the socket can not be had (feed.ErrAgentThere: a living agent has it),
// or the master has turned this agent away. Run is called once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.own != nil {
		defer a.own.Close()
	}
	found, err := a.feed.Listen(ctx)
	if err != nil {
		return fmt.Errorf("agent %s: %w", a.cfg.Name, err)
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() { a.desk.clock(done) })
	wg.Go(func() {
		select {
		case <-a.desk.greeted:
			close(a.ready)
		case <-done:
		}
	})
	if found {
		a.cfg.Logger.Info("an agent died on this socket; its trainers may come back", "socket", a.cfg.Socket)
		select {
		case <-time.After(comeBack):
		case <-ctx.Done():
		}
	}
	err = a.keepSession(ctx)
	a.feed.Close()
	close(done)
	wg.Wait()
	if errors.Is(err, errTurnedAway) {
		return fmt.Errorf("agent %s: %w", a.cfg.Name, err)
	}
	return nil
}

// Ready is closed when the socket listens and the master has answered the first
// Hello.
func (a *Agent) Ready() <-chan struct{} { return a.ready }
