package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/master"
)

func (a *app) upCommand() *cobra.Command {
	var files []string
	var resumeFailed bool
	cmd := &cobra.Command{
		Use:   "up [-f FILE]",
		Short: "Master and agent in one process: the default on one machine",
		Long: `Starts a master with its store in the state folder, and an agent for this
machine's trainers. Tools find it by the state folder. Files are read from the
current folder and from the roots of -f, or from --allow-root if that is given.`,
		Example: `  headrace up -f clicks.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			outliveReaders()
			docs, err := a.loadUp(cmd, files, oneMachine)
			if err != nil {
				return err
			}
			log := a.logger()
			err = a.up(cmd.Context(), log, atStart{docs: docs, resumeFailed: resumeFailed}, func(ctx context.Context, m *master.Master) error {
				log.Info("trainers can come", "socket", a.cfg.Socket, "metrics", m.HTTP())
				<-ctx.Done()
				return nil
			})
			if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return nil // asked to stop while it was starting
			}
			return err
		},
	}
	specFlag(cmd, &files)
	resumeFlag(cmd, &resumeFailed)
	config.AddFlags(cmd.Flags(), oneMachine, slices.Concat(ofMaster, ofAgent)...)
	completeFolders(cmd)
	return cmd
}

// oneMachine are the defaults of up. Ports are any free ones, because tools find the master
// by its state folder. Files are read below the current folder.
var oneMachine = map[string]string{"listen": "127.0.0.1:0", "http": "127.0.0.1:0", "allow_root": "."}

// loadUp loads the settings of up and run, and reads -f, whose roots are allowed
// too unless --allow-root says which.
func (a *app) loadUp(cmd *cobra.Command, files []string, defaults map[string]string) ([]dataset.Document, error) {
	if err := a.load(cmd, defaults); err != nil {
		return nil, err
	}
	if err := a.sameProject(); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, nil
	}
	docs, err := a.readSpecs(cmd.CommandPath(), files)
	if err != nil {
		return nil, err
	}
	if a.cfg.From("allow_root") == "" {
		for _, d := range docs {
			a.cfg.AllowRoots = append(a.cfg.AllowRoots, d.Spec.Folders()...)
			if k := d.Spec.DeadLetter; k != nil && k.Files != "" {
				a.cfg.AllowRoots = append(a.cfg.AllowRoots, k.Files)
			}
		}
	}
	if a.cfg.From("allow_broker") == "" { // the same user brings the specs and the secrets
		brokers := a.cfg.AllowBrokers
		for _, d := range docs {
			for _, in := range d.Spec.Inputs() {
				brokers = append(brokers, in.ReachOf().Addresses...)
			}
		}
		return docs, a.connect(brokers)
	}
	return docs, nil
}

// up runs master and agent, and calls body once trainers can connect. It ends when body
// returns, when ctx ends (body's context ends too), or when master or agent fails. It then
// stops the agent, and after it the master.
func (a *app) up(ctx context.Context, log *slog.Logger, at atStart, body func(context.Context, *master.Master) error) error {
	m, err := a.newMaster(log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopMaster := a.background(ctx, m.Run, cancel)
	return errors.Join(a.withAgent(ctx, cancel, log, at, m, body), stopMaster())
}

func (a *app) withAgent(ctx context.Context, cancel context.CancelCauseFunc, log *slog.Logger, at atStart, m *master.Master,
	body func(context.Context, *master.Master) error) error {
	if !waitFor(ctx, m.Ready()) {
		return nil // the cause is the master's own error
	}
	if err := a.rememberProject(); err != nil {
		return err
	}
	target := a.cfg.TargetAt(m.Addr())
	conn, err := link.Dial(target, a.cfg.TLS)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := a.applyAtStart(ctx, &client{headracev1.NewDatasetsClient(conn), conn, target}, at); err != nil {
		return err
	}
	g, err := a.newAgent(conn, target, log, besides{m.Registry()})
	if err != nil {
		return err
	}
	stopAgent := a.background(ctx, g.Run, cancel)
	if waitFor(ctx, g.Ready()) {
		err = body(ctx, m)
	}
	return errors.Join(err, stopAgent())
}

// background runs a master or an agent, which goes on after ctx until it is stopped. So we
// choose the order of stopping. If it fails, ctx ends.
func (a *app) background(ctx context.Context, run func(context.Context) error, cancel context.CancelCauseFunc) (stop func() error) {
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() {
		err := run(own)
		if err == nil && own.Err() == nil {
			err = errors.New("it ended by itself")
		}
		if err != nil {
			cancel(err)
		}
		done <- err
	}()
	return func() error {
		end()
		return <-done
	}
}

func waitFor(ctx context.Context, ready <-chan struct{}) bool {
	select {
	case <-ready:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
