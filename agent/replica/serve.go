package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/shardsvc/cut"
)

// silentAfter is how long a Keep waits for more bytes. The sender gives up sooner (stuckAfter), unless
// it is frozen: its machine may still answer probes.
const silentAfter = 2 * stuckAfter

// Keep implements pb.ReplicasServer.
func (n *Node) Keep(in grpc.ClientStreamingServer[pb.KeepRequest, pb.KeepReply]) error {
	first, err := in.Recv()
	if err != nil {
		return err
	}
	h := first.Slot
	if h == nil || h.Folder == nil {
		return status.Error(codes.InvalidArgument, "the first message names no slot")
	}
	r, err := memory.Keep(n.cfg.Root, folderFrom(h.Folder), h.Rank, h.Cut, h.Order, headFrom(h))
	if err != nil {
		return statusOf(err)
	}
	silent, stop := context.WithCancel(in.Context())
	defer stop()
	stuck := time.AfterFunc(silentAfter, stop)
	defer stuck.Stop()
	ended := make(chan error, 1)
	n.receiving.Go(func() { ended <- errors.Join(received(&alive[*pb.KeepRequest]{in, stuck, silentAfter}, r), r.Close()) })
	select {
	case err = <-ended:
	case <-silent.Done(): // when this call has returned, Recv fails, and then the slot is free
		return status.Errorf(codes.Aborted, "nothing came for %v", silentAfter)
	}
	if err != nil {
		return statusOf(err)
	}
	return in.SendAndClose(&pb.KeepReply{})
}

// data gives the next bytes of a slot.
type data interface{ GetData() []byte }

// received writes all that comes, and makes the slot complete.
func received[M data](in interface{ Recv() (M, error) }, r *memory.Receiving) error {
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			return r.Done()
		}
		if err != nil {
			return err
		}
		if _, err := r.Write(m.GetData()); err != nil {
			return err
		}
	}
}

// Look implements pb.ReplicasServer.
func (n *Node) Look(_ context.Context, in *pb.LookRequest) (*pb.LookReply, error) {
	held, err := n.held(in.Folder)
	if err != nil {
		return nil, err
	}
	var out pb.LookReply
	for _, h := range held {
		m := &h.About.Manifest
		out.Copies = append(out.Copies, &pb.Copy{Rank: h.About.Rank, Cut: uint64(m.Cut.ID), Order: m.Cut.Order, Step: m.Step, Replica: h.Replica, Node: h.About.Node, Shard: h.About.Shard})
	}
	return &out, nil
}

// held are the complete checkpoints of a folder that are here: replicas and this node's own.
func (n *Node) held(in *pb.SlotFolder) ([]memory.Checkpoint, error) {
	f := folderFrom(in)
	if err := f.Check(); err != nil {
		return nil, statusOf(err)
	}
	all, err := f.Both(n.cfg.Root)
	if err != nil {
		return nil, statusOf(err)
	}
	return all, nil
}

// open opens one of them.
func (n *Node) open(in *pb.CheckRequest) (*memory.Slot, error) {
	held, err := n.held(in.Folder)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if h.About.Rank != in.Rank || uint64(h.About.Manifest.Cut.ID) != in.Cut {
			continue
		}
		s, err := memory.Open(h.Slot)
		if err != nil {
			continue // it is written over
		}
		if uint64(s.About.Manifest.Cut.ID) == in.Cut {
			return s, nil
		}
		if err := s.Close(); err != nil {
			return nil, statusOf(err)
		}
	}
	return nil, status.Errorf(codes.NotFound, "agent %s has no copy of rank %d's checkpoint of cut %v", n.cfg.Agent, in.Rank, cut.ID(in.Cut))
}

// Check implements pb.ReplicasServer.
func (n *Node) Check(_ context.Context, in *pb.CheckRequest) (_ *pb.CheckReply, err error) {
	s, err := n.open(in)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Fault(); err != nil {
		return nil, status.Error(codes.DataLoss, err.Error())
	}
	text, err := s.Text()
	if err != nil {
		return nil, statusOf(err)
	}
	f := folderFrom(in.Folder)
	return &pb.CheckReply{Text: text, Slot: headOf(&f, s)}, nil
}

// Fetch implements pb.ReplicasServer.
func (n *Node) Fetch(in *pb.CheckRequest, out grpc.ServerStreamingServer[pb.FetchReply]) (err error) {
	s, err := n.open(in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	f := folderFrom(in.Folder)
	if err := out.Send(&pb.FetchReply{Slot: headOf(&f, s)}); err != nil {
		return err
	}
	buf := make([]byte, chunk)
	for at := int64(0); ; {
		k, err := s.ReadAt(buf, at)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return statusOf(err)
		}
		if err := out.Send(&pb.FetchReply{Data: buf[:k]}); err != nil {
			return err
		}
		at += int64(k)
	}
}

// Forget implements pb.ReplicasServer.
func (n *Node) Forget(_ context.Context, in *pb.ForgetRequest) (*pb.ForgetReply, error) {
	if in.Folder == nil {
		return nil, status.Error(codes.InvalidArgument, "it names no folder")
	}
	if err := memory.DropReplicas(n.cfg.Root, folderFrom(in.Folder), in.Rank, in.Below); err != nil {
		return nil, statusOf(err)
	}
	return &pb.ForgetReply{}, nil
}

func folderFrom(f *pb.SlotFolder) memory.Folder {
	return memory.Folder{ID: f.GetId(), Job: f.GetJob(), Dir: f.GetDir()}
}

func headFrom(h *pb.SlotHead) memory.Head {
	return memory.Head{Number: h.Number, Image: h.Image, ImageCRC: h.ImageCrc, Text: h.Text, TextCRC: h.TextCrc}
}

// statusOf gives an error of package memory the code that peers.proto says.
func statusOf(err error) error {
	code := codes.Internal
	for _, x := range []struct {
		is   error
		code codes.Code
	}{{memory.ErrNoRoom, codes.ResourceExhausted}, {memory.ErrWrong, codes.Aborted}, {memory.ErrPinned, codes.Aborted},
		{memory.ErrAsNew, codes.FailedPrecondition}, {memory.ErrNoShape, codes.InvalidArgument}} {
		if errors.Is(err, x.is) {
			code = x.code
		}
	}
	if s, ok := status.FromError(err); ok && code == codes.Internal {
		return s.Err()
	}
	return status.Error(code, fmt.Sprint(err))
}
