package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/crc64nvme"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/shardsvc/cut"
)

var theFolder = memory.Folder{ID: "0123456789abcdef", Job: "job", Dir: "/checkpoints"}

// slotOf is what a trainer of a rank leaves in memory: a checkpoint with one array.
func slotOf(t *testing.T, rank uint32, order uint64) (h *pb.SlotHead, all []byte) {
	t.Helper()
	header := `{"w":{"dtype":"U8","shape":[5000],"data_offsets":[0,5000]}}`
	image := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	image = append(image, make([]byte, 5000)...)
	text, err := json.Marshal(memory.About{Version: 1, Path: "/checkpoints/x", Rank: rank, Node: "here",
		Manifest: manifest.Manifest{Job: "job", Model: "replicated", Step: int64(order), Cut: cut.Cut{ID: cut.ID(order), Rank: cut.Group, Order: order}}})
	if err != nil {
		t.Fatal(err)
	}
	return &pb.SlotHead{Folder: folderOf(&theFolder), Rank: rank, Number: order, Order: order, Cut: order, Image: uint64(len(image)), ImageCrc: crc64nvme.Checksum(image),
		Text: uint64(len(text)), TextCrc: crc64nvme.Checksum(text)}, append(image, text...)
}

// writeSlot writes a trainer's slot below root.
func writeSlot(t *testing.T, root string, rank uint32, order uint64) {
	t.Helper()
	h, all := slotOf(t, rank, order)
	r, err := memory.Keep(root, theFolder, rank, order, order, headFrom(h))
	if err == nil {
		_, err = r.Write(all)
		err = errors.Join(err, r.Done(), r.Close())
	}
	if err == nil {
		err = os.Rename(r.Path, filepath.Join(filepath.Dir(r.Path), fmt.Sprintf("rank-%d-slot-%d", rank, order%2)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wire is a network on which each address has one listener.
type wire map[string]*bufconn.Listener

func (w wire) dial(at string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if w[at] == nil {
				return nil, errors.New("nobody is there")
			}
			return w[at].DialContext(ctx)
		}))
}

// node makes an agent that listens at an address of a wire. The master is away.
func node(t *testing.T, w wire, name string, log io.Writer) *Node {
	t.Helper()
	master, err := w.dial("master")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	w[name] = bufconn.Listen(1 << 20)
	n, err := New(Config{Job: "job", Agent: name, Master: master, Copies: 1, Bandwidth: 1 << 30, Root: filepath.Join(t.TempDir(), "slots"),
		Listener: w[name], Address: name, Dial: w.dial, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// runs runs an agent until the test ends.
func runs(t *testing.T, n *Node) {
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
}

// A sender is frozen in the middle of a copy, and its machine still answers probes. Its rank goes on on another node,
// whose agent copies to the same receiver.
func TestAFrozenSenderDoesNotLockAReplicaForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wire{}
		runs(t, node(t, w, "receiver", io.Discard))
		conn, err := w.dial("receiver")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		keep := func(order uint64) grpc.ClientStreamingClient[pb.KeepRequest, pb.KeepReply] {
			h, all := slotOf(t, 3, order)
			s, err := pb.NewReplicasClient(conn).Keep(t.Context())
			if err == nil {
				err = errors.Join(s.Send(&pb.KeepRequest{Slot: h}), s.Send(&pb.KeepRequest{Data: all}))
			}
			if err != nil && !errors.Is(err, io.EOF) { // EOF: it was refused; the reply says why
				t.Fatal(err)
			}
			synctest.Wait() // the receiver has written it
			return s
		}
		frozen := keep(1)
		if _, err := keep(2).CloseAndRecv(); status.Code(err) != codes.Aborted {
			t.Errorf("a copy into a slot that another sender writes: %v, want Aborted", err)
		}
		time.Sleep(silentAfter)
		synctest.Wait()
		if _, err := keep(2).CloseAndRecv(); err != nil {
			t.Errorf("%v after the sender froze, its copy still locks the slot: %v", silentAfter, err)
		}
		if _, err := frozen.CloseAndRecv(); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "nothing came for 1m0s") {
			t.Errorf("the frozen sender was told: %v", err)
		}
	})
}

// naming is a master that knows these agents.
type naming struct {
	pb.UnimplementedPeersServer
	reply pb.MeetReply
}

func (m *naming) Meet(context.Context, *pb.MeetRequest) (*pb.MeetReply, error) { return &m.reply, nil }

func TestConnectionsToAgentsThatHaveLeftAreClosed(t *testing.T) {
	w := wire{"master": bufconn.Listen(1 << 20)}
	var master naming
	gs := grpc.NewServer()
	pb.RegisterPeersServer(gs, &master)
	var wg sync.WaitGroup
	defer wg.Wait()
	l := w["master"]
	wg.Go(func() { _ = gs.Serve(l) })
	defer gs.Stop()
	n := node(t, w, "us", io.Discard)
	peer := func(name string) *pb.Peer { return &pb.Peer{Agent: name, Address: name, Memory: uint64(name[0])} }
	meet := func(settled bool, agents ...*pb.Peer) {
		t.Helper()
		master.reply.Job, master.reply.Version, master.reply.Settled, master.reply.Agents = "job", master.reply.Version+1, settled, agents
		if err := n.meetOnce(t.Context(), pb.NewPeersClient(n.cfg.Master)); err != nil {
			t.Fatal(err)
		}
		for _, p := range append(agents, n.self) {
			if _, err := n.client(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	meet(true, n.self, peer("a"), peer("b"))
	was := n.conns["a"]
	meet(false, n.self) // a master that has just started
	if len(n.conns) != 3 {
		t.Errorf("there are %d connections, want 3: the master does not know all agents yet", len(n.conns))
	}
	meet(true, n.self, peer("b"), peer("c"))
	if len(n.conns) != 3 || n.conns["a"] != nil || was.GetState() != connectivity.Shutdown {
		t.Errorf("there are %d connections, want those to us, b and c; that to a is %v", len(n.conns), was.GetState())
	}
	for _, c := range n.conns {
		_ = c.Close()
	}
}

// refusing is an agent whose slots are always in use.
type refusing struct{ pb.UnimplementedReplicasServer }

func (refusing) Keep(grpc.ClientStreamingServer[pb.KeepRequest, pb.KeepReply]) error {
	return status.Error(codes.Aborted, "the slot is in use: /dev/shm/replica-0-slot-1")
}

func TestCopiesThatAreRefusedAgainAndAgainAreLoggedOnceAndThenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := bufconn.Listen(1 << 20)
		w := wire{"other": other}
		gs := grpc.NewServer()
		pb.RegisterReplicasServer(gs, refusing{})
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { _ = gs.Serve(other) })
		defer gs.Stop()

		var log bytes.Buffer // read after the sender has ended
		n := node(t, w, "us", &log)
		n.agents = []*pb.Peer{{Agent: "other", Address: "other", Memory: n.memory + 1}, n.self}
		writeSlot(t, n.cfg.Root, 0, 1)
		ctx, stop := context.WithTimeout(t.Context(), 5*refusedFor)
		defer stop()
		n.send(ctx)
		for _, c := range n.conns {
			_ = c.Close()
		}
		if got := strings.Count(log.String(), "agent other at other does not take the copies of rank 0's checkpoints in /checkpoints; they are sent again: the slot is in use"); got != 1 {
			t.Errorf("it was logged %d times, want once:\n%s", got, log.String())
		}
		if got := n.slots.Reads(); got != 1 {
			t.Errorf("a slot that did not change was read %d times in %v, want once", got, 5*refusedFor)
		}
	})
}

func TestATextIsLoggedAgainWhenItIsNewOrTenMinutesOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := node(t, wire{}, "us", &log)
		for range 21 * 60 {
			n.tell("a", "nobody answers")
			time.Sleep(time.Second)
		}
		if got := strings.Count(log.String(), "nobody answers"); got != 3 {
			t.Errorf("in 21 minutes it was logged %d times, want 3:\n%s", got, log.String())
		}
		n.tell("a", "nobody is there")
		n.tell("a", "")
		n.tell("a", "nobody is there")
		if got := strings.Count(log.String(), "nobody is there"); got != 2 {
			t.Errorf("another text was logged %d times, want 2: all was well in between", got)
		}
	})
}

// ended is a stream of one message.
type ended struct{ left int }

func (e *ended) Recv() (*pb.KeepRequest, error) {
	if e.left--; e.left < 0 {
		return nil, io.EOF
	}
	return &pb.KeepRequest{}, nil
}

// A large slot is read back for a while when all of it has come. Nobody waits for a byte then.
func TestACopyThatHasComeWhollyIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gaveUp := false
		a := alive[*pb.KeepRequest]{&ended{1}, time.AfterFunc(silentAfter, func() { gaveUp = true }), silentAfter}
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		if _, err := a.Recv(); err != nil {
			t.Fatal(err)
		}
		if wait(silentAfter - 1); gaveUp {
			t.Errorf("the copy was given up within %v of its last byte", silentAfter)
		}
		if _, err := a.Recv(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if wait(time.Hour); gaveUp {
			t.Error("the copy was given up after its end had come")
		}
	})
}

func TestAnAgentMayTakeLongToAllocateALargeSlot(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		size, at int64
		want     time.Duration
	}{
		{gib / 2, 0, stuckAfter}, {100 * gib, 0, stuckAfter + 100*time.Second}, {100 * gib, unread, stuckAfter + 100*time.Second},
		{100 * gib, unread + 1, stuckAfter}, {100 * gib, 100*gib - 1, stuckAfter}, {100 * gib, 100 * gib, stuckAfter + 100*time.Second},
	} {
		if got := patience(c.size, c.at); got != c.want {
			t.Errorf("an agent that has %d of %d bytes may take none for %v, want %v", c.at, c.size, got, c.want)
		}
	}
}
