package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Look says whether a valid manifest of a cut is at a path, and when it was made. An error
// means that the storage could not be read; the cut is then not resolved.
type Look func(ctx context.Context, path string, cut cut.ID) (found bool, created time.Time, err error)

const (
	lookAgain  = time.Second
	lookWithin = 30 * time.Second // the core voids a cut whose manifest was not seen by then
)

// resolve looks for the manifest of a cut whose process is gone, and tells the core
// whether it is there. While the storage cannot be read it looks again. A look that
// hangs is abandoned, because a file system may never answer.
func (s *Server) resolve(id uint64, path string) {
	if s.cfg.Look == nil {
		return
	}
	s.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		cut := cut.ID(id)
		for {
			found, created, err := s.look(ctx, path, cut)
			if err == nil {
				if found {
					s.bindings.seen(id, created)
				}
				s.resolved(ctx, id, path, found)
				return
			}
			s.cfg.Logger.Warn("the storage of a checkpoint cannot be read; trying again", "cut", cut.String(), "path", path, "error", err)
			select {
			case <-time.After(lookAgain):
			case <-ctx.Done():
				s.cfg.Logger.Error("the storage of a checkpoint could not be read in time: the checkpoint is voided", "cut", cut.String(), "path", path)
				return
			}
		}
	})
}

func (s *Server) resolved(ctx context.Context, id uint64, path string, found bool) {
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "looked for a checkpoint whose process is gone", slog.String("cut", cut.ID(id).String()),
		slog.String("path", path), slog.Bool("found", found))
	// The error means that the server stops. The next term resolves the cut.
	_ = s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.ResolveCut{Cut: id, Found: found})
		return nil
	})
}

// look calls Config.Look and waits at most until ctx ends. A call that hangs keeps its
// goroutine until it returns.
func (s *Server) look(ctx context.Context, path string, cut cut.ID) (found bool, created time.Time, err error) {
	type seen struct {
		found   bool
		created time.Time
		err     error
	}
	done := make(chan seen, 1)
	go func() { // ends with the look
		var v seen
		v.found, v.created, v.err = s.cfg.Look(ctx, path, cut)
		done <- v
	}()
	select {
	case v := <-done:
		return v.found, v.created, v.err
	case <-ctx.Done():
		return false, time.Time{}, ctx.Err()
	}
}

// background runs f until the server stops; Run waits for it.
func (s *Server) background(f func(context.Context)) {
	if !s.begin() {
		return
	}
	go func() {
		defer s.readers.Done()
		f(s.alive)
	}()
}
