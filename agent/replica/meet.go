package replica

import (
	"context"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/memory"
)

const (
	meetEvery = time.Second
	meetAgain = 200 * time.Millisecond // after a master that did not answer
	// mostTold is how many replicas an agent tells the master of.
	mostTold = 256
)

// meet tells the master that this agent lives, and learns of the others.
func (n *Node) meet(ctx context.Context) {
	master := pb.NewPeersClient(n.cfg.Master)
	for {
		pause := meetEvery
		if err := n.meetOnce(ctx, master); err != nil && ctx.Err() == nil {
			pause = meetAgain
			n.tell("master", "the master does not tell which agents there are: "+err.Error())
		} else if err == nil {
			n.tell("master", "")
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

func (n *Node) meetOnce(ctx context.Context, master pb.PeersClient) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n.mu.Lock()
	known := n.version
	n.mu.Unlock()
	r, err := master.Meet(ctx, &pb.MeetRequest{Job: n.cfg.Job, Agent: n.cfg.Agent, Address: n.cfg.Address, Memory: n.memory, Keeps: n.keeps(), Known: known})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.job = r.Job
	if r.Version != known {
		n.version, n.agents = r.Version, r.Agents
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
	if r.Settled { // before that, a master that has just started does not know all of them
		n.closeLeft()
	}
	if r.Settled && !n.settled {
		n.settled = true
		close(n.met)
	}
	return nil
}

// keeps lists the replicas that lie here.
func (n *Node) keeps() (all []*pb.Replica) {
	n.mu.Lock()
	job := n.job
	n.mu.Unlock()
	folders, err := memory.Folders(n.cfg.Root, job)
	if err != nil {
		return nil
	}
	for i := range folders {
		held, err := n.slots.Replicas(&folders[i])
		if err != nil {
			continue // it was removed
		}
		for _, h := range held {
			if len(all) == mostTold {
				return all
			}
			m := &h.About.Manifest
			own := int64(0)
			if m.Rank != nil {
				own = int64(*m.Rank) + 1
			}
			all = append(all, &pb.Replica{Epoch: m.Cut.Epoch, PrivateRank: own,
				Dir: folders[i].Dir, Job: folders[i].Job, Rank: h.About.Rank, Cut: uint64(m.Cut.ID), Order: m.Cut.Order,
				Step: m.Step, Bytes: h.Bytes, Node: h.About.Node, WrittenMs: h.Written.UnixMilli(), WorldSize: m.WorldSize, Model: m.Model, Path: h.About.Path})
		}
	}
	return all
}
