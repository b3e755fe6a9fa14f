package master

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/shardsvc/serve"
)

// maxStreams of one connection: an agent has one session, a tool a few calls.
const maxStreams = 64

func (m *Master) grpcServer(srv *serve.Server) (*grpc.Server, error) {
	creds, err := m.cfg.TLS.Server()
	if err != nil {
		return nil, err
	}
	gs := grpc.NewServer(
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(link.MaxMessage),
		grpc.MaxSendMsgSize(link.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: link.KeepaliveEvery / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: link.KeepaliveEvery, Timeout: 5 * time.Second}),
	)
	srv.Register(gs)
	return gs, nil
}

// stopGRPC lets calls in flight end, for a while.
func stopGRPC(gs *grpc.Server) {
	done := make(chan struct{})
	go func() { // ends with the server
		defer close(done)
		gs.GracefulStop()
	}()
	select {
	case <-done:
	case <-time.After(stopGrace):
		gs.Stop()
		<-done
	}
}
