package link

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/access"
)

// cable is a connection that can be cut. Then nothing comes through, and neither end is told: that is what one
// end sees if the other machine has lost its power.
type cable struct {
	net.Conn
	cut    <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *cable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.cut: // what came is lost, and so is the end
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *cable) Write(b []byte) (int, error) {
	select {
	case <-c.cut:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *cable) Close() error {
	select {
	case <-c.cut:
		c.once.Do(func() { close(c.closed) })
		return c.SetReadDeadline(time.Now()) // it ends Read; the other end is not told
	default:
		return c.Conn.Close()
	}
}

// keeping is an agent that waits for the bytes of a copy.
type keeping struct {
	pb.UnimplementedReplicasServer
	began chan struct{}
	ended chan error
}

func (k *keeping) Keep(in grpc.ClientStreamingServer[pb.KeepRequest, pb.KeepReply]) error {
	close(k.began)
	_, err := in.Recv()
	k.ended <- err
	return err
}

// A call may wait for hours. If the other machine is lost meanwhile, both ends of the call learn it.
func TestEachEndOfACallNoticesThatTheOtherMachineIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		if err := access.Keep(state); err != nil {
			t.Fatal(err)
		}
		l := bufconn.Listen(1 << 20)
		door, err := NewDoor(l, TLS{}, &access.Book{State: state}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		agent := &keeping{began: make(chan struct{}), ended: make(chan error, 1)}
		gs := grpc.NewServer(door.ServerOptions()...)
		pb.RegisterReplicasServer(gs, agent)
		var wg sync.WaitGroup
		wg.Go(func() { _ = gs.Serve(door) })
		defer wg.Wait()
		defer gs.Stop()

		creds, err := Target{State: state}.Credentials(TLS{})
		if err != nil {
			t.Fatal(err)
		}
		cut := make(chan struct{})
		dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := l.DialContext(ctx)
			return &cable{Conn: c, cut: cut, closed: make(chan struct{})}, err
		})
		conn, err := grpc.NewClient("passthrough:///agent", append(dialOptions(creds), dial)...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		call, err := pb.NewReplicasClient(conn).Keep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-agent.began
		caller := make(chan error, 1)
		wg.Go(func() { caller <- call.RecvMsg(&pb.KeepReply{}) })

		time.Sleep(time.Hour) // probes of a healthy connection end nothing
		synctest.Wait()
		select {
		case err := <-agent.ended:
			t.Fatalf("the agent's end of a healthy call: %v", err)
		case err := <-caller:
			t.Fatalf("the caller's end of a healthy call: %v", err)
		default:
		}
		close(cut)
		for name, end := range map[string]chan error{"agent": agent.ended, "caller": caller} {
			select {
			case err := <-end:
				if c := status.Code(err); c != codes.Canceled && c != codes.Unavailable {
					t.Errorf("the end of the %s: %v, want Canceled or Unavailable", name, err)
				}
			case <-time.After(time.Minute): // of the bubble's clock
				t.Errorf("a minute after the other machine was lost, the %s still waits", name)
			}
		}
	})
}
