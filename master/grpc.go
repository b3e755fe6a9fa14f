package master

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/shardsvc/serve"
)

// maxStreams bounds the streams of one connection. An agent has one session, a tool a few
// calls.
const maxStreams = 64

func grpcServer(srv *serve.Server, door *link.Door) *grpc.Server {
	gs := grpc.NewServer(append(access.Options(),
		grpc.Creds(door.Credentials()),
		grpc.MaxRecvMsgSize(link.MaxMessage),
		grpc.MaxSendMsgSize(link.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: link.KeepaliveEvery / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: link.KeepaliveEvery, Timeout: 5 * time.Second}),
	)...)
	srv.Register(gs)
	return gs
}

// stopGRPC waits for calls in flight, at most stopGrace, and then stops the server.
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
