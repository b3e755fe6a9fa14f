package link

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/headrace/headrace/internal/access"
)

// MaxMessage bounds one gRPC message in either direction: a batch of grants
// with their locators, a page of state, or a cut with its segment tables (256 MiB).
const MaxMessage = 257 << 20

// Both ends of a connection probe it when it is silent, and give it up if no answer comes. The
// other machine may be lost, or its process may be frozen. A server allows probes twice as often,
// so that no client is cut off for a probe that comes early.
const (
	keepaliveEvery  = 10 * time.Second
	keepaliveWithin = 5 * time.Second
)

// ServerOptions are what each gRPC server of a master or an agent needs: who may make which call,
// the size of messages, and probes.
func (d *Door) ServerOptions() []grpc.ServerOption {
	return append(access.Options(),
		grpc.Creds(d.Credentials()),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveEvery, Timeout: keepaliveWithin}),
	)
}

// dialOptions are what each connection to a master or an agent needs.
func dialOptions(creds credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveWithin}),
		grpc.WithUserAgent("headrace"),
		grpc.WithNoProxy(), // a job's own network, never the way to the internet
	}
}
