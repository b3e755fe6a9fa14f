package hold

import (
	"fmt"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// maxCalls is how many calls one worker may have open: a save asks one at a time.
const maxCalls = 64

// call is a question about cuts. It is kept until the master has answered, and
// said again in each new session: calls are idempotent.
type call struct {
	*pb.CutCall
	sent bool // in this session
}

// onCall keeps a trainer's call until it is answered. The call of a fenced worker is answered
// here: it can change nothing, and must hear that even while no master is there.
func (c *Core) onCall(in *pb.CutCall) {
	w := c.byNumber[in.Worker]
	switch {
	case w == nil || w.state == gone:
		return
	case in.Id <= w.lastCall:
		c.fx.Invalid = fmt.Sprintf("call %d after call %d: ids grow", in.Id, w.lastCall)
		return
	case w.state == fenced || w.state == ending:
		c.answerFenced(w, in.Id)
	case len(w.calls) >= maxCalls:
		c.fx.Answers = append(c.fx.Answers, &pb.CutReply{Worker: in.Worker, Id: in.Id, Code: pb.CutReply_REFUSED,
			Reason: fmt.Sprintf("%d calls of this process are not answered yet", len(w.calls))})
	default:
		w.calls = append(w.calls, call{CutCall: in})
		c.callSoon(w)
	}
	w.lastCall = in.Id
}

// callSoon sends w's calls with this Step, if the master knows the worker.
func (c *Core) callSoon(w *worker) {
	if len(w.calls) > 0 && w.state == joined && !slices.Contains(c.callers, w) {
		c.callers = append(c.callers, w)
	}
}

// sendCalls sends the calls that wait, each in a message of its own, because a body may be
// large. The acks and steps that came before a call have left before it.
func (c *Core) sendCalls() {
	for _, w := range c.callers {
		if w.state != joined {
			continue
		}
		for i := range w.calls {
			if k := &w.calls[i]; !k.sent {
				k.sent = true
				c.message().Calls = []*pb.CutCall{k.CutCall}
				c.send()
			}
		}
	}
	clear(c.callers)
	c.callers = c.callers[:0]
}

// unsendCalls marks the calls that were sent and not answered: the new session repeats them.
func (c *Core) unsendCalls() {
	clear(c.callers)
	c.callers = c.callers[:0]
	for _, w := range c.workers {
		for i := range w.calls {
			w.calls[i].sent = false
		}
	}
}

// cutReply passes an answer on, once. If the answer says that the worker is fenced, it is: the
// master would refuse its next calls as well.
func (c *Core) cutReply(r *pb.CutReply) {
	w := c.byNumber[r.Worker]
	if w == nil {
		return
	}
	i := slices.IndexFunc(w.calls, func(k call) bool { return k.Id == r.Id })
	if i < 0 {
		return // answered in a session before
	}
	if w.calls[i].GetRestore() != nil && r.Code == pb.CutReply_OK && !w.stepped() {
		w.lastStep = r.Step // which may lie before the one that it joined at
	}
	w.calls = slices.Delete(w.calls, i, i+1)
	c.fx.Answers = append(c.fx.Answers, r)
	if r.Code == pb.CutReply_FENCED && (w.state != ending || c.model != "shared") { // in `shared`, what an ending one steps still counts
		c.fence(w, r.Reason)
	}
}

// stepped says whether the process has reported a step since it began.
func (w *worker) stepped() bool {
	return slices.ContainsFunc(w.streams, func(s *stream) bool { return s.lastStep > 0 })
}

// fenceCalls answers all open calls of w.
func (c *Core) fenceCalls(w *worker) {
	for _, k := range w.calls {
		c.answerFenced(w, k.Id)
	}
	w.calls = nil
}

func (c *Core) answerFenced(w *worker, id uint64) {
	c.fx.Answers = append(c.fx.Answers, &pb.CutReply{Worker: w.join.Worker, Id: id, Code: pb.CutReply_FENCED, Reason: w.reason})
}
