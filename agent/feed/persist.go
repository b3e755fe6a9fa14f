package feed

import (
	"context"
	"fmt"
	"os"

	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/frame"
)

// persist writes a checkpoint that lies in memory to storage, so that the trainer's
// interpreter has nothing to do with it. It goes on if the trainer is killed. One is
// written at a time for each trainer, because a trainer asks for one at a time.
func (t *trainer) persist(v *frame.Call) {
	t.srv.wg.Go(func() {
		a := frame.Answer{ID: v.ID, Code: frame.AnswerOK, Cut: v.Cut}
		if path, err := t.srv.persist(v); err != nil {
			a.Code, a.Reason = frame.AnswerRefused, err.Error()
			t.srv.cfg.Logger.Warn("a checkpoint stays in memory only", "rank", t.hello.Rank, "cut", v.Cut, "error", err)
		} else {
			a.Path = path
		}
		t.out.send(frame.TypeAnswer, 0, a)
	})
}

func (s *Server) persist(v *frame.Call) (path string, err error) {
	slot, err := memory.Open(v.Path)
	if err != nil {
		return "", err
	}
	defer func() { _ = slot.Close() }() // it was only read
	switch uid, err := slot.Owner(); {
	case err != nil:
		return "", err
	case int(uid) != os.Getuid():
		return "", fmt.Errorf("%s is of user %d, and the agent runs as user %d: files on storage would be of another user", v.Path, uid, os.Getuid())
	case frame.CutID(slot.About.Manifest.Cut.ID) != v.Cut:
		return "", fmt.Errorf("%s holds cut %v, and not %v", v.Path, slot.About.Manifest.Cut.ID, v.Cut)
	}
	ctx, cancel := context.WithCancel(s.stopped)
	defer cancel()
	if err := memory.Persist(ctx, s.cfg.Checkpoints.On(ctx, slot.About.Path, memory.Direct{}), slot); err != nil {
		return "", err
	}
	return slot.About.Path, nil
}
