package feed

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/frame"
)

// persist writes a checkpoint that lies in memory to storage, so that the trainer's
// interpreter has nothing to do with it. It goes on if the trainer is killed. One is
// written at a time for each trainer, because a trainer asks for one at a time.
func (t *trainer) persist(v *frame.Call) {
	t.srv.wg.Go(func() {
		a := frame.Answer{ID: v.ID, Code: frame.AnswerOK, Cut: v.Cut}
		if path, missing, err := t.srv.persist(v); len(missing) > 0 {
			a.Code, a.Reason = frame.AnswerAgain, fmt.Sprintf("no part of rank%s yet", ranks(missing))
		} else if err != nil {
			a.Code, a.Reason = frame.AnswerRefused, err.Error()
			t.srv.cfg.Logger.Warn("a checkpoint stays in memory only", "rank", t.hello.Rank, "cut", v.Cut, "error", err)
		} else {
			a.Path = path
		}
		t.out.send(frame.TypeAnswer, 0, a)
	})
}

func ranks(of []uint32) string {
	text := fmt.Sprint(of)
	text = strings.ReplaceAll(text[1:len(text)-1], " ", ", ")
	if len(of) > 1 {
		return "s " + text
	}
	return " " + text
}

// persist gives the path of the manifest, or the ranks whose parts are missing for it.
func (s *Server) persist(v *frame.Call) (path string, missing []uint32, err error) {
	slot, err := memory.Open(v.Path)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = slot.Close() }() // it was only read
	switch uid, err := slot.Owner(); {
	case err != nil:
		return "", nil, err
	case int(uid) != os.Getuid():
		return "", nil, fmt.Errorf("%s is of user %d, and the agent runs as user %d: files on storage would be of another user", v.Path, uid, os.Getuid())
	case frame.CutID(slot.About.Manifest.Cut.ID) != v.Cut:
		return "", nil, fmt.Errorf("%s holds cut %v, and not %v", v.Path, slot.About.Manifest.Cut.ID, v.Cut)
	}
	ctx, cancel := context.WithCancel(s.stopped)
	defer cancel()
	on := s.cfg.Checkpoints.On(ctx, slot.About.Path, memory.Direct{})
	if v.Mode == frame.PersistGather {
		bucket, is := on.(manifest.Bucket)
		if !is {
			return "", nil, fmt.Errorf("%s does not lie in a bucket", slot.About.Path)
		}
		missing, err = memory.Gather(bucket, slot)
		return slot.About.Path, missing, err
	}
	return slot.About.Path, nil, memory.Persist(ctx, on, slot)
}
