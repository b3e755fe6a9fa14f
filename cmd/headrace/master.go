package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/master"
)

func (a *app) masterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "master",
		Short: "The process that owns a job: one per job",
		Long: `Keeps the ledger of a job in its state folder, lists its datasets and leases
shards to agents. It reads files only to find them; agents read the records.
Off loopback it needs --tls-cert, --tls-key and --tls-ca: everybody shows a certificate.`,
		Example: `  headrace master --job ctr --allow-root /data`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			outliveReaders()
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			m, err := a.newMaster(a.logger())
			if err != nil {
				return err
			}
			return m.Run(cmd.Context())
		},
	}
	config.AddFlags(cmd.Flags(), nil, ofMaster...)
	completeFolders(cmd)
	return cmd
}

func (a *app) newMaster(log *slog.Logger) (*master.Master, error) {
	if len(a.cfg.AllowRoots) == 0 {
		log.Warn("no folder is allowed: every dataset of files will be refused; name one with --allow-root")
	}
	return master.New(master.Config{
		Job: a.cfg.Job, Model: a.cfg.Model, Version: version, State: a.cfg.State,
		Listen: a.cfg.Listen, HTTP: a.cfg.HTTP, TLS: a.cfg.TLS, Access: a.cfg.Book(), SessionTTL: a.cfg.SessionTTL, LostAfter: a.cfg.LostAfter,
		OpenSource: a.listSource(log), Check: a.checkSpec(log), Logger: log, AllowRoots: a.cfg.AllowRoots, OpenLanding: a.openLanding, Checkpoints: a.checkpoints(),
	})
}

func completeFolders(cmd *cobra.Command) {
	for _, flag := range []string{"allow-root", "model"} {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		if flag == "model" {
			complete(cmd, flag, "shared", "replicated", "private")
		} else if err := cmd.MarkFlagDirname(flag); err != nil {
			panic(err)
		}
	}
}
