package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/headrace/headrace/agent/feed"
	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

// ackDelay is how long acks wait for others: a message costs the master as much
// with one ack as with a hundred.
const ackDelay = 2 * time.Millisecond

// comeBack is how long a new agent on the socket of a dead one waits for living
// trainers before its first Hello. A trainer that comes later costs a second Hello.
const comeBack = 150 * time.Millisecond

// lastWords is how long an agent that stops waits, at most, for the master to know which
// trainers have ended. Living trainers are not waited for.
const lastWords = 3 * time.Second

// Agent is one node's agent. Make it with New, start it with Run.
type Agent struct {
	cfg   Config
	desk  *desk
	feed  *feed.Server
	ready chan struct{}
	met   bool // the master has answered this session's Hello; only keepSession uses it
}

// New checks the configuration. It opens nothing and starts nothing.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, ready: make(chan struct{})}
	host, err := os.Hostname()
	if err != nil {
		host = cfg.Name
	}
	a.desk = newDesk(hold.Config{
		Prefetch: prefetch, AckDelay: ackDelay,
		Hello: &pb.Hello{
			Protocol: link.Protocol, Job: cfg.Job, Agent: cfg.Name, Incarnation: rand.Uint64(), Version: cfg.Version,
			Host: host, Pid: int32(os.Getpid()), Gpus: cfg.GPUs,
			Clock: clockName(),
		},
	})
	metrics, err := feed.NewMetrics(cfg.Registerer, func() int64 { return a.feed.Buffered() })
	if err != nil {
		return nil, fmt.Errorf("agent: metrics: %w", err)
	}
	a.feed = feed.NewServer(feed.Config{
		Socket: cfg.Socket, Agent: cfg.Name, Version: cfg.Version, Prefetch: prefetch, Linger: linger,
		BufferBytes: cfg.BufferBytes, ShareFrom: cfg.ShareFrom, Desk: a.desk, Checkpoints: cfg.Checkpoints, Peers: cfg.Replicas, Metrics: metrics, Logger: cfg.Logger,
		Catalog: &catalog{client: pb.NewDatasetsClient(cfg.Conn), open: cfg.Open, sources: map[string]*shared{}},
	})
	a.desk.srv = a.feed
	return a, nil
}

// Run serves trainers until ctx ends. It then stops gracefully and returns nil: the
// socket is removed and no goroutine of the agent runs. Trainers live on. They look for
// an agent on the same path until their session's TTL has passed.
//
// Errors: the socket cannot be opened (feed.ErrAgentThere: a living agent has it), or
// the master has turned this agent away. Call Run once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	a.feed.TakeStepFiles()
	peers, stopPeers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPeers()
	if a.cfg.Replicas != nil {
		wg.Go(func() { a.cfg.Replicas.Run(peers) })
	}
	session, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	wg.Go(func() {
		defer end()
		select {
		case <-ctx.Done():
			a.tellOfTheEnded(session)
		case <-done:
		}
	})
	err = a.keepSession(session)
	a.feed.Close()
	stopPeers()
	close(done)
	wg.Wait()
	if errors.Is(err, errTurnedAway) {
		return fmt.Errorf("agent %s: %w", a.cfg.Name, err)
	}
	return nil
}

// tellOfTheEnded has the master know of each trainer whose process has ended: how it ended
// says which records are suspects (on_crash: isolate). The next agent could not tell.
func (a *Agent) tellOfTheEnded(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	a.feed.Departed(ctx)
	a.desk.leavesKnown(ctx)
}

// Ready is closed when the socket listens and the master has answered the first
// Hello.
func (a *Agent) Ready() <-chan struct{} { return a.ready }
