package main

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/link"
)

const (
	// saveWithin bounds writing what trainers left in memory before they are started
	// again.
	saveWithin = 10 * time.Minute
	// saveAtEndWithin bounds it when this process was asked to end. A preempted node
	// leaves little more time.
	saveAtEndWithin = 20 * time.Second
)

// saveMemory writes to storage the newest checkpoints that a job's trainers have left in
// memory, and tells the master. The trainers have ended.
func (a *app) saveMemory(ctx context.Context, of memory.Left, target link.Target, log *slog.Logger) {
	places := a.checkpoints()
	on := func(path string) manifest.FS { return places.On(ctx, path, memory.Direct{}) }
	saved, err := memory.PersistNewest(ctx, on, memory.Root(), of)
	if err != nil {
		log.Warn("the checkpoints in memory could not be read", "error", err)
	}
	for _, s := range saved {
		m := &s.Checkpoint.About.Manifest
		if s.Err != nil {
			a.say("the checkpoint of step %d stays in memory only: %v", m.Step, s.Err)
			continue
		}
		a.say("the checkpoint of step %d lay in memory only; it is on storage now: %s", m.Step, s.Checkpoint.About.Path)
		if err := a.bindSaved(ctx, target, uint64(m.Cut.ID), s.Checkpoint.About.Path); err != nil {
			log.Info("the master learns of it at the next restore", "cut", m.Cut.ID, "reason", err)
		}
	}
}

func (a *app) bindSaved(ctx context.Context, target link.Target, cut uint64, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := link.Dial(target, a.cfg.TLS)
	if err != nil {
		return err
	}
	defer func(conn *grpc.ClientConn) { _ = conn.Close() }(conn)
	_, err = headracev1.NewCheckpointsClient(conn).Bind(ctx, &headracev1.BindCutRequest{Cut: cut, Path: path})
	return err
}
