//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent/replica"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/link"
)

// peers opens the port for the agents of other nodes; nil: none was asked for.
func (a *app) peers(master grpc.ClientConnInterface, log *slog.Logger) (*replica.Node, error) {
	c := a.cfg
	if c.Replicas == 0 && c.PeerListen == "" {
		return nil, nil
	}
	l, err := link.Listen(context.Background(), "the port for other agents", "--peer-listen", cmp.Or(c.PeerListen, "127.0.0.1:0"), c.TLS)
	if err != nil {
		return nil, err
	}
	book := c.Book()
	door, err := link.NewDoor(l, c.TLS, book, log)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	addr := l.Addr().String()
	if host, _, err := net.SplitHostPort(c.PeerListen); err == nil { // a name stays one: its certificate has it
		_, port, _ := net.SplitHostPort(addr)
		addr = net.JoinHostPort(host, port)
	}
	node, err := replica.New(replica.Config{
		Job: a.agentJob(), Agent: c.Name, Master: master, Copies: c.Replicas, Bandwidth: c.ReplicaBandwidth, Root: memory.Root(),
		Listener: door, Address: addr, Logger: log,
		Server: door.ServerOptions(),
		Dial:   func(at string) (*grpc.ClientConn, error) { return link.DialPeer(at, c.Target(), c.TLS, book) },
	})
	if err != nil {
		return nil, errors.Join(err, door.Close())
	}
	log.Info("copies of checkpoints in memory", "address", addr, "copies", c.Replicas)
	return node, nil
}
