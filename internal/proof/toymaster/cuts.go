package toymaster

import (
	"encoding/json"
	"fmt"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// cuts is what the toy master knows of cuts. Each trainer has its own model. The cut at step S is what
// the trainer acked with a step <= S, or with step 0. In a `shared` job the cut is what is acked when
// it is asked for.
type cuts struct {
	asked  []question // questions that cannot be answered yet
	paused *question  // a pause of yields; it is answered when all workers yield nothing
	said   []pausedWorker
	frozen map[uint64]*Cut
}

// pausedWorker is a worker that has said that it yields nothing.
type pausedWorker struct {
	session *Session
	worker  uint32
}

type question struct {
	session *Session
	call    *pb.CutCall
}

// Cut is a frozen cut. Its JSON is the body that trainers get.
type Cut struct {
	Step    int64     `json:"step"`
	Trainer uint64    `json:"trainer"` // incarnation of the trainer
	Parts   []Settled `json:"parts"`

	Path  string `json:"-"`
	Bound bool   `json:"-"`
}

// Settled is one acked piece.
type Settled struct {
	Segment int64     `json:"segment"`
	From    int64     `json:"from"`
	To      int64     `json:"to"`
	Trainer uint64    `json:"trainer"`
	Step    int64     `json:"step"`
	Tally   *pb.Tally `json:"-"` // the records in it, if the agent counted them
}

// Acked lists all acked pieces, in order.
func (m *Master) Acked() []Settled { return m.acked }

// Cut gives a frozen cut. nil: there is none.
func (m *Master) Cut(id uint64) *Cut { return m.cuts.frozen[id] }

func (m *Master) call(s *Session, k *pb.CutCall) {
	m.Calls = append(m.Calls, k)
	r := &pb.CutReply{Worker: k.Worker, Id: k.Id}
	refuse := func(format string, args ...any) {
		r.Code, r.Reason = pb.CutReply_REFUSED, fmt.Sprintf(format, args...)
	}
	switch {
	case k.GetPause() != nil:
		m.cuts.paused, m.cuts.said = &question{s, k}, nil
		m.tellPause(k.GetPause().Cut, true)
		return
	case k.GetAsk() != nil:
		m.cuts.asked = append(m.cuts.asked, question{s, k})
		return
	case k.GetBind() != nil:
		if c := m.cuts.frozen[k.GetBind().Cut]; c == nil {
			refuse("cut %016x was never frozen, or was dropped", k.GetBind().Cut)
		} else {
			c.Bound, c.Path = true, k.GetBind().Path
		}
	case k.GetDrop() != nil:
		delete(m.cuts.frozen, k.GetDrop().Cut)
	case k.GetRestore() != nil:
		var c Cut
		if body := k.GetRestore().Body; len(body) > 0 {
			if err := json.Unmarshal(body, &c); err != nil {
				refuse("the cut is not JSON: %v", err)
				break
			}
		}
		m.Restore = false
		r.Step, r.Epoch, r.Path = c.Step, m.Epoch, k.GetRestore().Path
	default:
		refuse("the call asks for nothing")
	}
	s.Send(&pb.MasterMessage{Term: m.Term, CutReplies: []*pb.CutReply{r}})
}

// answerAsked freezes and answers each cut that is complete.
func (m *Master) answerAsked() {
	m.cuts.asked = slices.DeleteFunc(m.cuts.asked, func(q question) bool {
		ask := q.call.GetAsk()
		if h := m.cuts.paused; h != nil && h.call.GetPause().Cut == ask.Cut {
			m.cuts.paused = nil
			defer m.tellPause(ask.Cut, false)
		}
		shared := m.Model == "shared"
		if q.session.gone || !shared && m.reported[q.session.trainer(q.call.Worker)] < ask.Step {
			return q.session.gone
		}
		c := m.cuts.frozen[ask.Cut]
		if c == nil { // a repeated question gets the same cut
			c = &Cut{Step: ask.Step, Trainer: q.session.trainer(q.call.Worker), Path: ask.Path}
			for _, p := range m.acked {
				if shared || p.Trainer == c.Trainer && p.Step <= c.Step {
					c.Parts = append(c.Parts, p)
				}
			}
			if m.cuts.frozen == nil {
				m.cuts.frozen = map[uint64]*Cut{}
			}
			m.cuts.frozen[ask.Cut] = c
		}
		body, err := json.Marshal(c)
		if err != nil {
			panic("toymaster: " + err.Error())
		}
		q.session.Send(&pb.MasterMessage{Term: m.Term, CutReplies: []*pb.CutReply{{
			Worker: q.call.Worker, Id: q.call.Id, Cut: ask.Cut, Step: c.Step, Body: body}}})
		return true
	})
}

// tellPause tells all workers that their yields are paused, or that they may go on.
func (m *Master) tellPause(cut uint64, on bool) {
	for _, s := range m.sessions {
		for worker := range s.workers {
			s.Send(&pb.MasterMessage{Term: m.Term, PauseYields: []*pb.PauseYields{{Worker: worker, Cut: cut, On: on, Reason: "somebody saves"}}})
		}
	}
}

// yieldsPaused answers the trainer that saves, when all workers have said that they yield nothing.
func (m *Master) yieldsPaused(s *Session, h *pb.YieldsPaused) {
	q := m.cuts.paused
	if q == nil || h.Cut != q.call.GetPause().Cut {
		return
	}
	m.cuts.said = append(m.cuts.said, pausedWorker{s, h.Worker})
	for _, s := range m.sessions {
		for worker := range s.workers {
			if !slices.Contains(m.cuts.said, pausedWorker{s, worker}) {
				return
			}
		}
	}
	q.session.Send(&pb.MasterMessage{Term: m.Term, CutReplies: []*pb.CutReply{{Worker: q.call.Worker, Id: q.call.Id, Cut: h.Cut}}})
}
