package master

import (
	"time"

	"google.golang.org/grpc"

	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/shardsvc/serve"
)

// maxStreams bounds the streams of one connection. An agent has one session, a tool a few
// calls.
const maxStreams = 64

func grpcServer(srv *serve.Server, door *link.Door) *grpc.Server {
	gs := grpc.NewServer(append(door.ServerOptions(), grpc.MaxConcurrentStreams(maxStreams))...)
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
