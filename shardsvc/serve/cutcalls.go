package serve

import (
	"fmt"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"google.golang.org/protobuf/proto"
)

// maxCalls of one message: a trainer waits for its answers.
const maxCalls = 1 << 16

// badCall is a call that the core could make nothing of.
type badCall struct {
	worker uint32
	id     uint64
	reason string
}

// cutCall reads one CutCall. The body of a Restore may be large and come from
// anywhere: it is read here, on the stream's own goroutine. One that can not be
// is refused, in its turn; it does not end the stream, which is everybody's.
func (in *inbound) cutCall(b []byte) error {
	if len(in.msg.Calls)+len(in.badCalls) >= maxCalls {
		return fmt.Errorf("more than %d calls in one message", maxCalls)
	}
	var p headracev1.CutCall
	if err := proto.Unmarshal(b, &p); err != nil {
		return err
	}
	c := shardsvc.CutCall{Worker: p.Worker, ID: p.Id}
	switch k := p.Call.(type) {
	case *headracev1.CutCall_Ask:
		c.Ask = &shardsvc.CutAsk{Cut: k.Ask.GetCut(), Step: k.Ask.GetStep(), Carried: k.Ask.GetCarried(), Path: k.Ask.GetPath(),
			Deadline: shardsvc.Time(k.Ask.GetDeadlineMs()) * shardsvc.Millisecond, Exact: k.Ask.GetExact(), After: k.Ask.GetAfter()}
	case *headracev1.CutCall_Bind:
		c.Bind = &shardsvc.CutBind{Cut: k.Bind.GetCut(), Path: k.Bind.GetPath()}
	case *headracev1.CutCall_Drop:
		c.Drop = &shardsvc.CutDrop{Cut: k.Drop.GetCut(), Reason: k.Drop.GetReason()}
	case *headracev1.CutCall_Hold:
		c.Hold = &shardsvc.CutHold{Cut: k.Hold.GetCut(), Deadline: shardsvc.Time(k.Hold.GetDeadlineMs()) * shardsvc.Millisecond}
	case *headracev1.CutCall_Restore:
		r, err := in.restore(k.Restore)
		if err != nil {
			in.badCalls = append(in.badCalls, badCall{c.Worker, c.ID, "the cut can not be read: " + err.Error()})
			return nil
		}
		c.Restore = r
	default:
		in.badCalls = append(in.badCalls, badCall{c.Worker, c.ID, "the call says nothing that this master knows"})
		return nil
	}
	in.msg.Calls = append(in.msg.Calls, c)
	return nil
}

func (in *inbound) restore(k *headracev1.Restore) (*shardsvc.RestoreCall, error) {
	if k.GetMode() < 0 || k.GetMode() > headracev1.Restore_START {
		return nil, fmt.Errorf("unknown mode %d", k.GetMode())
	}
	r := &shardsvc.RestoreCall{Mode: shardsvc.RestoreMode(k.GetMode()), Path: k.GetPath(), Failed: k.GetFailed(), After: k.GetAfter()}
	if len(k.GetBody()) == 0 {
		return r, nil
	}
	c, err := cut.ParseJSON(k.GetBody())
	if err != nil {
		return nil, err
	}
	if err := c.Of(in.job, in.model); err != nil {
		return nil, err
	}
	r.Cut = c
	return r, err
}

// refuse answers a call that the core never saw.
func (k badCall) refuse(to shardsvc.Session) shardsvc.Reply {
	return shardsvc.Reply{To: to, Kind: shardsvc.ReplyCut, Worker: k.worker, Request: k.id, Reason: k.reason,
		Cut: &shardsvc.CutAnswer{Code: shardsvc.CutRefused}}
}

// wireReply is the answer to a call, without its body.
func wireReply(r *shardsvc.Reply) *headracev1.CutReply {
	return &headracev1.CutReply{Worker: r.Worker, Id: r.Request, Code: headracev1.CutReply_Code(r.Cut.Code), Reason: valid(r.Reason),
		Cut: r.Cut.Cut, Step: r.Step, Path: valid(r.Cut.Path), Again: r.Units, Epoch: r.Epoch, AgainTally: wireTally(r.Again)}
}

func wireTally(t *cut.Tally) *headracev1.Tally {
	if t == nil {
		return nil
	}
	return &headracev1.Tally{Rows: t.Rows, Oldest: t.Oldest, Newest: t.Newest, Untold: t.Untold}
}

// cutReply is an answer with a body, which becomes bytes when it is sent: it may
// be megabytes, and neither the loop nor the committer has time for that.
type cutReply struct {
	reply *headracev1.CutReply
	cut   *cut.Cut
	texts *bodies
}

// encode is the whole message. A cut that can not be said is answered as refused,
// with the reason.
func (c *cutReply) encode() *[]byte {
	body, err := c.texts.of(c.cut)
	if err != nil {
		c.reply.Code, c.reply.Reason = headracev1.CutReply_REFUSED, "the master can not write the cut down: "+valid(err.Error())
	}
	c.reply.Body = body
	buf := messages.get()
	*buf, err = proto.MarshalOptions{}.MarshalAppend(*buf, &headracev1.MasterMessage{CutReplies: []*headracev1.CutReply{c.reply}})
	if err != nil {
		panic("serve: a reply of valid strings does not marshal: " + err.Error())
	}
	return buf
}
