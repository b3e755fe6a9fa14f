package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/shardsvc/cut"
)

const (
	settleWithin = 15 * time.Second // for the master to know all agents
	lookWithin   = 3 * time.Second  // for one agent to say what it has
	mostChecked  = 4                // checkpoints, the newest ones
)

// Wanted is what a trainer looks for.
type Wanted struct {
	Folder string   // of its slots on this node
	Rank   uint32   // its own
	Any    bool     // any rank's state serves: the ranks of a replicated group have one
	Known  []uint64 // cuts that it can read in this node's memory
}

// Found is a checkpoint in another node's memory, whose checksum was right just now.
type Found struct {
	Agent string          `json:"agent"`
	Rank  uint32          `json:"rank"` // of the trainer that wrote it
	Cut   string          `json:"cut"`
	About json.RawMessage `json:"about"`
}

// Finds is the answer of Find.
type Finds struct {
	Found  []Found  `json:"found"`
	Faults []string `json:"faults"` // why others do not count
}

// place is one copy at one agent.
type place struct {
	at   *pb.Peer
	copy *pb.Copy
}

// Find looks for checkpoints in the memory of other nodes, and for what this one keeps of
// others', the newest first.
func (n *Node) Find(ctx context.Context, w Wanted) (*Finds, error) {
	f := n.folder(w.Folder)
	if f == nil {
		return nil, fmt.Errorf("%s is no folder of slots of this agent, which looks in %s: trainer and agent need the same %s", w.Folder, n.cfg.Root, memory.RootVariable)
	}
	settled, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	out := &Finds{Found: []Found{}, Faults: []string{}}
	select {
	case <-n.met:
	case <-settled.Done():
		out.Faults = append(out.Faults, "the master did not tell which agents there are")
	}
	places, faults := n.look(ctx, f, n.all())
	out.Faults = append(out.Faults, faults...)
	places = slices.DeleteFunc(places, func(p place) bool { // the trainer has looked at its own slots itself
		return p.at == n.self && !p.copy.Replica && p.copy.Rank == w.Rank
	})
	checked := 0
	for _, copies := range byCut(places, &w) {
		if checked == mostChecked {
			break
		}
		checked++
		for _, p := range copies {
			about, err := n.check(ctx, f, p)
			if err == nil {
				out.Found = append(out.Found, Found{Agent: p.at.Agent, Rank: p.copy.Rank, Cut: cut.ID(p.copy.Cut).String(), About: about})
				break
			}
			out.Faults = append(out.Faults, fmt.Sprintf("step %d in memory of agent %s: %s", p.copy.Step, p.at.Agent, status.Convert(err).Message()))
		}
	}
	return out, nil
}

// all returns this agent and those of other nodes.
func (n *Node) all() []*pb.Peer {
	peers, _, _ := n.ring()
	return append([]*pb.Peer{n.self}, peers...)
}

// look asks all agents at once what they have of a folder.
func (n *Node) look(ctx context.Context, f *memory.Folder, peers []*pb.Peer) (all []place, faults []string) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range peers {
		wg.Go(func() {
			c, err := n.client(p)
			var r *pb.LookReply
			if err == nil {
				r, err = c.Look(ctx, &pb.LookRequest{Folder: folderOf(f)})
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults = append(faults, fmt.Sprintf("agent %s at %s does not say what it keeps: %s", p.Agent, p.Address, status.Convert(err).Message()))
				return
			}
			for _, k := range r.Copies {
				all = append(all, place{p, k})
			}
		})
	}
	wg.Wait()
	slices.Sort(faults)
	return all, faults
}

// byCut groups the wanted copies by cut, the newest cut first. Within a cut the rank's own copies
// come first. Copies older than the trainer's own checkpoints are left out.
func byCut(places []place, w *Wanted) [][]place {
	var least uint64
	for _, p := range places {
		if slices.Contains(w.Known, p.copy.Cut) && (least == 0 || p.copy.Order < least) {
			least = p.copy.Order
		}
	}
	var all [][]place
	places = slices.Clone(places)
	slices.SortFunc(places, func(a, b place) int {
		own := func(p place) int {
			if p.copy.Rank == w.Rank {
				return 0
			}
			return 1 + int(p.copy.Rank)
		}
		return cmp.Or(cmp.Compare(b.copy.Order, a.copy.Order), cmp.Compare(a.copy.Cut, b.copy.Cut), cmp.Compare(own(a), own(b)), cmp.Compare(a.at.Agent, b.at.Agent))
	})
	for _, p := range places {
		mine := p.copy.Rank == w.Rank || w.Any && !p.copy.Shard
		if !mine || slices.Contains(w.Known, p.copy.Cut) || p.copy.Order < least {
			continue
		}
		if k := len(all) - 1; k >= 0 && all[k][0].copy.Cut == p.copy.Cut {
			all[k] = append(all[k], p)
		} else {
			all = append(all, []place{p})
		}
	}
	return all
}

// check has an agent compare a copy with its checksum. It gives what the copy says of
// itself.
func (n *Node) check(ctx context.Context, f *memory.Folder, p place) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // to read it all, on a busy machine
	defer cancel()
	c, err := n.client(p.at)
	if err != nil {
		return nil, err
	}
	r, err := c.Check(ctx, &pb.CheckRequest{Folder: folderOf(f), Rank: p.copy.Rank, Cut: p.copy.Cut})
	if err != nil {
		return nil, err
	}
	if !json.Valid(r.Text) {
		return nil, status.Error(codes.DataLoss, "its description is not JSON")
	}
	return r.Text, nil
}

// Bring brings a checkpoint from another agent's memory into this node's, for the trainer of
// rank, and gives its path.
func (n *Node) Bring(ctx context.Context, folder, agent string, from, rank uint32, cutID uint64) (string, error) {
	f := n.folder(folder)
	if f == nil {
		return "", fmt.Errorf("%s is no folder of slots of this agent", folder)
	}
	peers := n.all()
	i := slices.IndexFunc(peers, func(p *pb.Peer) bool { return p.Agent == agent })
	if i < 0 {
		return "", fmt.Errorf("agent %s is not there any more", agent)
	}
	c, err := n.client(peers[i])
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stuck := time.AfterFunc(stuckAfter, func() { cancel(fmt.Errorf("agent %s sent nothing for %v", agent, stuckAfter)) })
	defer stuck.Stop()
	in, err := c.Fetch(ctx, &pb.CheckRequest{Folder: folderOf(f), Rank: from, Cut: cutID})
	if err != nil {
		return "", err
	}
	first, err := in.Recv()
	switch {
	case err != nil:
		return "", fmt.Errorf("agent %s: %s", agent, status.Convert(err).Message())
	case first.Slot == nil:
		return "", fmt.Errorf("agent %s sent no slot", agent)
	}
	stuck.Stop() // to allocate a large slot takes longer
	r, err := memory.Bring(f.Path, rank, from, cutID, headFrom(first.Slot))
	if err != nil {
		return "", err
	}
	stuck.Reset(stuckAfter)
	err = received(&alive[*pb.FetchReply]{in, stuck, stuckAfter}, r)
	if err := errors.Join(err, r.Close()); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return "", fmt.Errorf("%s: %w", filepath.Base(r.Path), err)
	}
	return r.Path, nil
}

// alive is a stream that is given up when nothing comes for a while. When it has ended, nobody
// waits for more.
type alive[M any] struct {
	in     interface{ Recv() (M, error) }
	stuck  *time.Timer
	within time.Duration
}

func (a *alive[M]) Recv() (M, error) {
	m, err := a.in.Recv()
	if err != nil {
		a.stuck.Stop()
	} else {
		a.stuck.Reset(a.within)
	}
	return m, err
}
