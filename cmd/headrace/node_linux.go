package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/agent/feed"
	"github.com/headrace/headrace/internal/link"
)

func (a *app) newAgent(conn grpc.ClientConnInterface, target link.Target, log *slog.Logger, metrics prometheus.Registerer) (node, error) {
	peers, err := a.peers(conn, log)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: a.cfg.Name, Job: a.agentJob(), Conn: conn, Master: target.String(), Socket: a.cfg.Socket, Open: a.readSource(conn, log), Checkpoints: a.checkpoints(), Replicas: peers,
		BufferBytes: a.cfg.Buffer, GPUs: listGPUs(log), Version: version, Logger: log, Registerer: metrics,
	})
}

// tellEnded tells the agent how a process group that run started has ended.
func (a *app) tellEnded(group int, crash bool) { feed.TellEnded(a.cfg.Socket, group, crash) }
