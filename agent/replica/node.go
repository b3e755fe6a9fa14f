package replica

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/memory"
)

// Config is what a Node is told.
type Config struct {
	Job       string // empty: whatever the master runs
	Agent     string // name
	Master    grpc.ClientConnInterface
	Copies    int          // 0: keep those of others only; 1: copy this node's slots too
	Bandwidth int64        // bytes per second of all copies together
	Root      string       // folder of this user's slots
	Listener  net.Listener // lets in only callers that have proven who they are
	Address   string       // of Listener, as the other nodes reach it
	Server    []grpc.ServerOption
	Dial      func(address string) (*grpc.ClientConn, error)
	Logger    *slog.Logger
}

// Node is one agent's part. Make it with New, and Run it.
type Node struct {
	pb.UnimplementedReplicasServer
	cfg    Config
	memory uint64
	self   *pb.Peer
	met    chan struct{} // closed when the others are known
	wake   chan struct{} // the others have changed

	receiving sync.WaitGroup // one for each Keep
	slots     memory.Seen

	mu      sync.Mutex
	agents  []*pb.Peer // all living ones, by name
	version uint64
	job     string
	conns   map[string]*grpc.ClientConn // by address
	told    map[string]told             // what was logged last, by subject
	settled bool
}

// New opens nothing but the folder of slots.
func New(cfg Config) (*Node, error) {
	if err := memory.Prepare(cfg.Root); err != nil {
		return nil, fmt.Errorf("replicas: %w", err)
	}
	id, err := memoryID(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("replicas: %w", err)
	}
	n := &Node{cfg: cfg, memory: id, met: make(chan struct{}), wake: make(chan struct{}, 1),
		conns: map[string]*grpc.ClientConn{}, told: map[string]told{}, job: cfg.Job}
	n.self = &pb.Peer{Agent: cfg.Agent, Address: cfg.Address, Memory: id}
	return n, nil
}

// Copies is how many copies of each slot this agent makes on other nodes. A nil Node makes none.
func (n *Node) Copies() int {
	if n == nil {
		return 0
	}
	return n.cfg.Copies
}

// Run serves the other agents and copies slots until ctx ends.
func (n *Node) Run(ctx context.Context) {
	gs := grpc.NewServer(append(n.cfg.Server, grpc.MaxConcurrentStreams(64))...)
	pb.RegisterReplicasServer(gs, n)
	var wg sync.WaitGroup
	wg.Go(func() { _ = gs.Serve(n.cfg.Listener) })
	wg.Go(func() { n.meet(ctx) })
	if n.cfg.Copies > 0 {
		wg.Go(func() { n.send(ctx) })
	}
	<-ctx.Done()
	gs.Stop()
	wg.Wait()
	n.receiving.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
}

// ring returns the agents of other nodes, the next one of the ring first. copies says whether this
// agent copies for its node. job is the master's job.
func (n *Node) ring() (peers []*pb.Peer, copies bool, job string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return others(n.agents, n.self), speaks(n.agents, n.self), n.job
}

// client is a connection to another agent. It connects on first use.
func (n *Node) client(p *pb.Peer) (pb.ReplicasClient, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.conns[p.Address]
	if c == nil {
		var err error
		if c, err = n.cfg.Dial(p.Address); err != nil {
			return nil, err
		}
		n.conns[p.Address] = c
	}
	return pb.NewReplicasClient(c), nil
}

// closeLeft closes the connections to agents that are not there any more: pods come and go with new
// addresses. The caller has locked n.mu.
func (n *Node) closeLeft() {
	there := map[string]bool{n.self.Address: true}
	for _, p := range n.agents {
		there[p.Address] = true
	}
	for at, c := range n.conns {
		if !there[at] {
			_ = c.Close()
			delete(n.conns, at)
		}
	}
}

// tellAgain is how often the same text about a subject is logged.
const tellAgain = 10 * time.Minute

type told struct {
	text string
	when time.Time
}

// tell logs text about a subject if it is not the text that was logged last, or if that was long
// ago. "": all is well again.
func (n *Node) tell(about, text string) {
	n.mu.Lock()
	was := n.told[about]
	says := text != "" && (text != was.text || time.Since(was.when) >= tellAgain)
	if says || text == "" {
		n.told[about] = told{text, time.Now()}
	}
	n.mu.Unlock()
	if says {
		n.cfg.Logger.Warn(text)
	}
}

// memoryID names the memory that a folder lies in, by the node's boot and the folder itself.
func memoryID(root string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // if it cannot be read, the folder alone names the memory
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %d", boot, st.Dev, st.Ino)
	return h.Sum64(), nil
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
