package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/memory"
)

const (
	lookEvery = 100 * time.Millisecond
	chunk     = 1 << 20
	// After stuckAfter without progress, a copy to an agent is given up. For shunFor the copies
	// then go to the next agent of the ring.
	stuckAfter = 30 * time.Second
	shunFor    = 20 * time.Second
	// refusedFor is when a copy is sent again that an agent could not take now.
	refusedFor = time.Second
	// An agent allocates a slot before it takes the bytes, and reads them back at the end. Each
	// is done with allocated bytes a second at least. The first unread bytes lie in buffers of
	// the connection, and say nothing of the agent's progress.
	allocated = 1 << 30
	unread    = 64 << 20
)

// patience is how long an agent may take no byte of a copy of so many, when it has at of them.
func patience(size, at int64) time.Duration {
	if at > unread && at < size {
		return stuckAfter
	}
	return stuckAfter + time.Duration(size/allocated)*time.Second
}

// stream names the checkpoints of one rank, or those of a whole replicated group, whose
// ranks have the same state.
type stream struct {
	folder string
	rank   string
}

// sent is what was copied last.
type sent struct {
	to    uint64 // memory of the receiver
	order uint64
}

// sender copies slots. Only its own goroutine uses it.
type sender struct {
	n       *Node
	pace    pace
	done    map[stream]sent
	shunned map[uint64]time.Time
	refused map[stream]time.Time // the last copy was refused for now; when it may be sent again
}

// send copies the newest complete slot of each stream to the next agent, one at a time.
func (n *Node) send(ctx context.Context) {
	s := &sender{n: n, pace: pace{perSecond: n.cfg.Bandwidth}, done: map[stream]sent{}, shunned: map[uint64]time.Time{}, refused: map[stream]time.Time{}}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.wake:
			clear(s.shunned) // one that was away may be back
		case <-ctx.Done():
			return
		}
		s.round(ctx)
	}
}

// round copies what is new, each stream once.
func (s *sender) round(ctx context.Context) {
	peers, speaks, job := s.n.ring()
	if !speaks || job == "" {
		return
	}
	to := s.receiver(peers)
	if to == nil {
		return
	}
	folders, err := memory.Folders(s.n.cfg.Root, job)
	if err != nil {
		s.n.tell("slots", "the slots of this node cannot be read: "+err.Error())
		return
	}
	for i := range folders {
		held, err := s.n.slots.Own(&folders[i])
		if err != nil {
			continue // it was removed
		}
		for st, h := range newest(&folders[i], held) {
			was, order := s.done[st], h.About.Manifest.Cut.Order
			if was.to == to.Memory && was.order >= order && was.order != 0 || time.Now().Before(s.refused[st]) {
				continue
			}
			if ctx.Err() != nil || !s.copied(ctx, &folders[i], st, h, to, peers) {
				return
			}
		}
	}
}

// receiver is the first agent of the ring that is not shunned.
func (s *sender) receiver(peers []*pb.Peer) *pb.Peer {
	for _, p := range peers {
		if time.Now().After(s.shunned[p.Memory]) {
			return p
		}
	}
	return nil
}

// newest returns the newest checkpoint of each stream. The ranks of a replicated group have the same
// state, so only one of them is copied: that of the node's lowest rank.
func newest(f *memory.Folder, held []memory.Checkpoint) map[stream]memory.Checkpoint {
	all := map[stream]memory.Checkpoint{}
	for _, h := range held { // by rank, the newest first
		st := stream{folder: f.Path, rank: strconv.FormatUint(uint64(h.About.Rank), 10)}
		if h.About.Manifest.Rank == nil && !h.About.Shard {
			st.rank = "group"
		}
		if _, ok := all[st]; !ok {
			all[st] = h
		}
	}
	return all
}

// copied copies one slot. It returns false if nothing more can be copied now.
func (s *sender) copied(ctx context.Context, f *memory.Folder, st stream, h memory.Checkpoint, to *pb.Peer, peers []*pb.Peer) bool {
	began := time.Now()
	err := s.copy(ctx, f, h, to)
	m := &h.About.Manifest
	_, again := s.refused[st]
	about := "copies of " + st.folder + " " + st.rank
	if status.Code(err) == codes.Aborted {
		s.refused[st] = time.Now().Add(refusedFor)
	} else {
		delete(s.refused, st)
		s.n.tell(about, "")
	}
	switch {
	case err == nil, status.Code(err) == codes.FailedPrecondition:
		first := s.done[st].to != to.Memory
		s.done[st] = sent{to.Memory, m.Cut.Order}
		s.n.tell("peer "+to.Agent, "")
		s.n.cfg.Logger.Debug("a checkpoint was copied to another node", "step", m.Step, "rank", h.About.Rank, "agent", to.Agent, "bytes", h.Bytes, "took", time.Since(began))
		if first {
			s.n.dropOlder(ctx, f, h.About.Rank, m.Cut.Order, to, peers)
		}
		return true
	case ctx.Err() != nil:
		return false
	case errors.Is(err, memory.ErrIncomplete):
		return true // the trainer writes it: there will be a newer one
	case status.Code(err) == codes.Aborted:
		if again {
			s.n.tell(about, fmt.Sprintf("agent %s at %s does not take the copies of rank %d's checkpoints in %s; they are sent again: %s",
				to.Agent, to.Address, h.About.Rank, f.Dir, status.Convert(err).Message()))
		}
		return true
	}
	s.shunned[to.Memory] = time.Now().Add(shunFor)
	s.n.tell("peer "+to.Agent, fmt.Sprintf("no copy of the checkpoint of step %d is on another node: agent %s at %s: %s", m.Step, to.Agent, to.Address, status.Convert(err).Message()))
	return false
}

// copy sends one slot, which is pinned meanwhile: its trainer uses another one.
func (s *sender) copy(ctx context.Context, f *memory.Folder, h memory.Checkpoint, to *pb.Peer) (err error) {
	slot, err := memory.Open(h.Slot)
	if err != nil {
		return fmt.Errorf("%w: %w", memory.ErrIncomplete, err)
	}
	defer func() {
		if e := slot.Close(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	if slot.About.Manifest.Cut.ID != h.About.Manifest.Cut.ID {
		return memory.ErrIncomplete
	}
	client, err := s.n.client(to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := int64(slot.Head().Image + slot.Head().Text)
	stuck := time.AfterFunc(patience(size, 0), func() { cancel(fmt.Errorf("it took nothing for %v or longer", stuckAfter)) })
	defer stuck.Stop()
	out, err := client.Keep(ctx)
	if err == nil {
		err = out.Send(&pb.KeepRequest{Slot: headOf(f, slot)})
	}
	buf := make([]byte, chunk)
	for at := int64(0); err == nil; {
		k, rerr := slot.ReadAt(buf, at)
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil {
			return fmt.Errorf("%w: %w", memory.ErrIncomplete, rerr)
		}
		if !s.pace.take(ctx, k) {
			break
		}
		stuck.Reset(patience(size, at))
		err = out.Send(&pb.KeepRequest{Data: buf[:k]})
		at += int64(k)
	}
	stuck.Reset(patience(size, size))
	if err == nil || errors.Is(err, io.EOF) { // the reply says why it ended
		_, err = out.CloseAndRecv()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// dropOlder has the agents other than keeper remove the older copies that they keep of a rank.
// Nobody waits for an agent that does not answer.
func (n *Node) dropOlder(ctx context.Context, f *memory.Folder, rank uint32, below uint64, keeper *pb.Peer, peers []*pb.Peer) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, p := range peers {
		if keeper != nil && p.Memory == keeper.Memory {
			continue
		}
		if c, err := n.client(p); err == nil {
			_, _ = c.Forget(ctx, &pb.ForgetRequest{Folder: folderOf(f), Rank: rank, Below: below})
		}
	}
}

// ForgetRank has all agents remove a rank's replicas: its last checkpoint is on storage.
func (n *Node) ForgetRank(ctx context.Context, folder string, rank uint32) {
	if f := n.folder(folder); f != nil {
		peers, _, _ := n.ring()
		n.dropOlder(ctx, f, rank, math.MaxUint64, nil, peers)
	}
}

// folder finds a folder of this node's slots.
func (n *Node) folder(path string) *memory.Folder {
	folders, err := memory.Folders(n.cfg.Root, "")
	if err != nil {
		return nil
	}
	for i := range folders {
		if folders[i].Path == filepath.Clean(path) {
			return &folders[i]
		}
	}
	return nil
}

func folderOf(f *memory.Folder) *pb.SlotFolder {
	return &pb.SlotFolder{Id: f.ID, Job: f.Job, Dir: f.Dir}
}

func headOf(f *memory.Folder, s *memory.Slot) *pb.SlotHead {
	h := s.Head()
	return &pb.SlotHead{Folder: folderOf(f), Rank: s.About.Rank, Number: h.Number, Image: h.Image, ImageCrc: h.ImageCRC, Text: h.Text, TextCrc: h.TextCRC,
		Order: s.About.Manifest.Cut.Order, Cut: uint64(s.About.Manifest.Cut.ID)}
}
