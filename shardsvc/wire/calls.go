package wire

import (
	"fmt"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"google.golang.org/protobuf/proto"
)

// maxCalls bounds the calls in one message. A trainer waits for each answer.
const maxCalls = 1 << 16

// maxWaited bounds how long a Restore says that it has waited: a day, in ms.
const maxWaited = 24 * 3600 * 1000

// Refusal is a call that is refused before the core sees it: this master does not know
// the kind of call, or cannot read its cut.
type Refusal struct {
	worker uint32
	id     uint64
	reason string
}

// cutCall reads one CutCall. The body of a Restore may be large, so it is parsed here, on
// the stream's own goroutine, and not in the loop. A body that cannot be read refuses
// its call. It does not end the stream: all trainers of the agent share it.
func (d *Decoder) cutCall(m *Message, b []byte) error {
	if len(m.Event.Calls)+len(m.Refusals) >= maxCalls {
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
			Deadline: shardsvc.Time(k.Ask.GetDeadlineMs()) * shardsvc.Millisecond, Exact: k.Ask.GetExact(), After: k.Ask.GetAfter(), Memory: k.Ask.GetMemory()}
	case *headracev1.CutCall_Bind:
		c.Bind = &shardsvc.CutBind{Cut: k.Bind.GetCut(), Path: k.Bind.GetPath()}
	case *headracev1.CutCall_Drop:
		c.Drop = &shardsvc.CutDrop{Cut: k.Drop.GetCut(), Reason: k.Drop.GetReason()}
	case *headracev1.CutCall_Pause:
		c.Pause = &shardsvc.CutPause{Cut: k.Pause.GetCut(), Deadline: shardsvc.Time(k.Pause.GetDeadlineMs()) * shardsvc.Millisecond}
	case *headracev1.CutCall_Restore:
		r, err := d.restore(k.Restore)
		if err != nil {
			m.Refusals = append(m.Refusals, Refusal{c.Worker, c.ID, "the cut cannot be read: " + err.Error()})
			return nil
		}
		c.Restore = r
	default:
		m.Refusals = append(m.Refusals, Refusal{c.Worker, c.ID, "this master does not know this kind of call: update the master"})
		return nil
	}
	m.Event.Calls = append(m.Event.Calls, c)
	return nil
}

func (d *Decoder) restore(k *headracev1.Restore) (*shardsvc.RestoreCall, error) {
	if k.GetMode() < 0 || k.GetMode() > headracev1.Restore_START {
		return nil, fmt.Errorf("unknown mode %d", k.GetMode())
	}
	r := &shardsvc.RestoreCall{Mode: shardsvc.RestoreMode(k.GetMode()), Path: k.GetPath(), Failed: k.GetFailed(), After: k.GetAfter(), Memory: k.GetMemory(), Tells: k.GetTells(), Readable: k.GetReadable(),
		Waited: shardsvc.Time(min(k.GetWaitedMs(), maxWaited)) * shardsvc.Millisecond}
	if len(k.GetBody()) == 0 {
		return r, nil
	}
	c, err := cut.ParseJSON(k.GetBody())
	if err != nil {
		return nil, err
	}
	if err := c.Of(d.Job, d.Model); err != nil {
		return nil, err
	}
	r.Cut = c
	return r, nil
}

// Reply returns the refusal as an answer on session to.
func (k Refusal) Reply(to shardsvc.Session) shardsvc.Reply {
	return shardsvc.Reply{To: to, Kind: shardsvc.ReplyCut, Worker: k.worker, Request: k.id, Reason: k.reason,
		Cut: &shardsvc.CutAnswer{Code: shardsvc.CutRefused}}
}
