package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/headrace/headrace/agent/replica"
	"github.com/headrace/headrace/internal/frame"
)

// peers does for a trainer what only agents can: ask the agents of other nodes.
func (t *trainer) peers(v *frame.Call) {
	t.srv.wg.Go(func() {
		a, err := t.askPeers(v)
		a.ID, a.Code = v.ID, frame.AnswerOK
		if err != nil {
			a = frame.Answer{ID: v.ID, Code: frame.AnswerRefused, Reason: err.Error()}
		}
		t.out.send(frame.TypeAnswer, 0, a)
	})
}

func (t *trainer) askPeers(v *frame.Call) (a frame.Answer, err error) {
	n := t.srv.cfg.Peers
	switch {
	case n == nil:
		return a, errors.New("this agent knows no other nodes: give it --replicas or --peer-listen")
	case int(t.cred.Uid) != os.Getuid():
		return a, fmt.Errorf("the trainer runs as user %d, and the agent, whose memory is used, as user %d: run both as one user", t.cred.Uid, os.Getuid())
	}
	ctx, cancel := context.WithCancel(t.srv.stopped)
	defer cancel()
	switch v.Mode {
	case frame.PeersFind:
		w := replica.Wanted{Folder: v.Into, Rank: t.hello.Rank, Any: v.Any}
		for _, c := range v.Readable {
			w.Known = append(w.Known, uint64(c))
		}
		found, err := n.Find(ctx, w)
		if err != nil {
			return a, err
		}
		a.Body, err = json.Marshal(found)
		if len(a.Body) > maxBody {
			return a, fmt.Errorf("the other nodes' list of checkpoints has %d bytes, over the limit of %d", len(a.Body), maxBody)
		}
		return a, err
	case frame.PeersBring:
		a.Path, err = n.Bring(ctx, v.Into, v.Path, v.From, t.hello.Rank, uint64(v.Cut))
		return a, err
	case frame.PeersForget:
		n.ForgetRank(ctx, v.Into, t.hello.Rank)
		return a, nil
	}
	return a, errors.New("mode of peers: it is find, bring or forget")
}
