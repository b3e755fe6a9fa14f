package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/internal/link"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Reads, decodes and hands batches to the trainers of one node",
		Long: `Keeps one session with the master, and holds leases for this node's trainers. Reads
and decodes the leased records, and hands out batches on a Unix socket. Trainers
find it by HEADRACE_AGENT, or at its default place.`,
		Example: `  headrace agent --name node-1 --master 10.0.0.1:7070 --allow-root /data`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			outliveReaders()
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			log := a.logger()
			conn, err := link.Dial(a.cfg.Target(), a.cfg.TLS)
			if err != nil {
				return advice.Usage.Wrap("", err)
			}
			defer func() { _ = conn.Close() }()
			if len(a.cfg.AllowRoots) == 0 {
				log.Warn("no folder is allowed: no file can be read; name one with --allow-root")
			}
			own := a.ownMetrics()
			var metrics prometheus.Registerer // no interface around a nil registry
			if own != nil {
				metrics = own
			}
			g, err := a.newAgent(conn, a.cfg.Target(), log, metrics)
			if err != nil {
				return err
			}
			stop, err := a.serveMetrics(cmd.Context(), log, own, g.Ready())
			if err != nil {
				return err
			}
			defer stop()
			return g.Run(cmd.Context())
		},
	}
	config.AddFlags(cmd.Flags(), nil, append(ofAgent, "allow_root", "allow_broker", "landing_storage", "landing_connection", "metrics", "role", "role_token")...)
	completeFolders(cmd)
	return cmd
}

// node is the agent of this machine.
type node interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}

// agentJob is the job that the agent insists on; "" if the user named none.
func (a *app) agentJob() string {
	if a.cfg.From("job") == "" {
		return ""
	}
	return a.cfg.Job
}
