package master

import (
	"cmp"
	"context"

	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

const (
	// peerLives is how long an agent that is not heard stays in the list. Agents say that
	// they live once a second.
	peerLives = 4 * time.Second
	// mostPeers bounds the list, and mostKeeps the replicas that one agent names.
	mostPeers = 10_000
	mostKeeps = 1024
)

// peers is where agents find each other, for copies of checkpoints in memory. Nothing of
// it is stored: an agent says it again each second.
type peers struct {
	pb.UnimplementedPeersServer
	job     string
	now     func() time.Time
	started time.Time

	mu      sync.Mutex
	version uint64
	agents  map[string]*peerHere
}

type peerHere struct {
	peer  *pb.Peer
	keeps []*pb.Replica
	heard time.Time
}

// newPeers makes the list. Agents say which version of it they know, and get the list if it
// is another one now. So a new master must not use a version again that an earlier one has
// used: it begins with the time, in ns. Only a wall clock that shows the same nanosecond
// twice could break that.
func newPeers(job string, now func() time.Time) *peers {
	start := now()
	return &peers{job: job, now: now, started: start, version: uint64(start.UnixNano()), agents: map[string]*peerHere{}}
}

// Meet implements pb.PeersServer.
func (p *peers) Meet(_ context.Context, in *pb.MeetRequest) (*pb.MeetReply, error) {
	switch {
	case in.Job != "" && in.Job != p.job:
		return nil, status.Errorf(codes.FailedPrecondition, "agent %q belongs to job %q, this master runs job %q", in.Agent, in.Job, p.job)
	case in.Agent == "" || len(in.Agent) > 256:
		return nil, status.Errorf(codes.InvalidArgument, "an agent needs a name, of at most 256 bytes")
	case len(in.Keeps) > mostKeeps:
		return nil, status.Errorf(codes.InvalidArgument, "agent %q names %d replicas, and %d are the most", in.Agent, len(in.Keeps), mostKeeps)
	}
	if err := link.CheckAddress(in.Address, false); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "address of agent %q: %v", in.Agent, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	me := &pb.Peer{Agent: in.Agent, Address: in.Address, Memory: in.Memory}
	was := p.agents[in.Agent]
	if was == nil && len(p.agents) >= mostPeers {
		return nil, status.Errorf(codes.ResourceExhausted, "there are %d agents already", len(p.agents))
	}
	if was == nil || was.peer.Address != me.Address || was.peer.Memory != me.Memory {
		p.version++
	}
	p.agents[in.Agent] = &peerHere{me, in.Keeps, p.now()}
	out := &pb.MeetReply{Version: p.version, Job: p.job, Settled: p.now().Sub(p.started) >= peerLives}
	if in.Known != p.version {
		for _, h := range p.sorted() {
			out.Agents = append(out.Agents, h.peer)
		}
	}
	return out, nil
}

// List implements pb.PeersServer.
func (p *peers) List(context.Context, *pb.ListPeersRequest) (*pb.ListPeersReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	var out pb.ListPeersReply
	for _, h := range p.sorted() {
		out.Peers = append(out.Peers, &pb.PeerState{Agent: h.peer.Agent, Address: h.peer.Address, Keeps: h.keeps})
	}
	return &out, nil
}

// forget removes the agents that were not heard for peerLives.
func (p *peers) forget() {
	for name, h := range p.agents {
		if p.now().Sub(h.heard) > peerLives {
			delete(p.agents, name)
			p.version++
		}
	}
}

func (p *peers) sorted() []*peerHere {
	all := make([]*peerHere, 0, len(p.agents))
	for _, h := range p.agents {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *peerHere) int { return cmp.Compare(a.peer.Agent, b.peer.Agent) })
	return all
}
