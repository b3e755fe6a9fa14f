package feed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/frame"
)

// stored does for a trainer what it cannot do itself: its checkpoints lie in a bucket, and
// only the agent has a client for that, and credentials.
func (t *trainer) stored(v *frame.Call) {
	t.srv.wg.Go(func() {
		a := frame.Answer{ID: v.ID, Code: frame.AnswerOK, Path: v.Path}
		id, err := t.srv.storedFor(t.cred.Uid, v)
		if a.Cut = id; err != nil {
			a.Code, a.Reason = frame.AnswerRefused, err.Error()
		}
		t.out.send(frame.TypeAnswer, 0, a)
	})
}

func (s *Server) storedFor(uid uint32, v *frame.Call) (id frame.CutID, err error) {
	switch {
	case !manifest.InBucket(v.Path):
		return 0, fmt.Errorf("%q is no path in a bucket: s3://BUCKET/PREFIX", v.Path)
	case int(uid) != os.Getuid():
		return 0, fmt.Errorf("the trainer runs as user %d, and the agent, whose credentials are used, as user %d: run both as one user", uid, os.Getuid())
	}
	ctx, cancel := context.WithCancel(s.stopped)
	defer cancel()
	places := s.cfg.Checkpoints
	switch v.Mode {
	case frame.StoredID:
		text, err := places.Identify(ctx, v.Path)
		if err != nil {
			return 0, err
		}
		return id, id.UnmarshalText([]byte(text))
	case frame.StoredList:
		return 0, places.Mirror(ctx, v.Path, v.Into)
	case frame.StoredFetch:
		return 0, places.Fetch(ctx, v.Path, v.Into, &v.From)
	case frame.StoredBegin:
		return 0, places.Begin(ctx, v.Path)
	case frame.StoredCancel:
		return 0, places.Cancel(ctx, v.Path)
	case frame.StoredRemove:
		return 0, places.Remove(ctx, v.Path)
	case frame.StoredSweep:
		removed, err := places.Sweep(ctx, v.Path, time.Duration(v.DeadlineMS)*time.Millisecond)
		for _, path := range removed {
			s.cfg.Logger.Info("removed the leftovers of a save that did not end", "path", path)
		}
		return 0, err
	}
	return 0, errors.New("mode of stored: it is id, list, fetch, begin, cancel, remove or sweep")
}
