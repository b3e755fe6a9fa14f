package sim

import (
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
)

// What shardsvc/serve does on the wire, without the wire.

func coreToken(t *pb.Token) shardsvc.Token {
	return shardsvc.Token{Epoch: t.GetEpoch(), Term: t.GetTerm(), Sequence: t.GetSequence()}
}

func wireToken(t shardsvc.Token) *pb.Token {
	return &pb.Token{Epoch: t.Epoch, Term: t.Term, Sequence: t.Sequence}
}

// event is what an agent's message means to the core.
func (w *World) event(s shardsvc.Session, m *pb.AgentMessage) *shardsvc.Message {
	ev := &shardsvc.Message{Session: s}
	if h := m.Hello; h != nil {
		ev.Hello = &shardsvc.Hello{Agent: h.Agent, Incarnation: h.Incarnation}
	}
	for _, p := range m.Joins {
		ev.Joins = append(ev.Joins, shardsvc.Join{Worker: p.Worker, Rank: p.Rank, Incarnation: p.Incarnation, WorldSize: p.WorldSize, Generation: p.Generation,
			Resume: shardsvc.Resume(p.Resume)})
	}
	for _, p := range m.Held {
		ev.Held = append(ev.Held, shardsvc.Held{Token: coreToken(p.Token), Worker: p.Worker, Dataset: p.Dataset, Partition: p.Partition, Pass: p.Pass,
			Segment: p.Segment, Start: p.LeaseStart, End: p.LeaseEnd, Frontier: p.Frontier})
	}
	for _, p := range m.Acks {
		ev.Acks = append(ev.Acks, shardsvc.Ack{Token: coreToken(p.Token), Prefix: p.Prefix, Step: p.Step, From: p.From,
			Told: p.Tally != nil, Rows: p.Tally.GetRows(), Oldest: p.Tally.GetOldest(), Newest: p.Tally.GetNewest()})
	}
	for _, p := range m.Steps {
		ev.Steps = append(ev.Steps, shardsvc.StepReport{Worker: p.Worker, Step: p.Step})
	}
	for _, p := range m.StealAnswers {
		ev.Answers = append(ev.Answers, shardsvc.StealAnswer{Token: coreToken(p.Token), Refused: p.Refused, At: p.At})
	}
	for _, p := range m.Releases {
		ev.Releases = append(ev.Releases, shardsvc.Release{Token: coreToken(p.Token), Prefix: p.Prefix, Reason: p.Reason})
	}
	for _, p := range m.Failures {
		f := shardsvc.ReadFailure{Token: coreToken(p.Token), At: p.At, Permanent: p.Permanent, Kind: p.Kind, Message: p.Message}
		if x := p.Lost; x != nil {
			f.Lost, f.When = &shardsvc.LostRange{Segment: x.Segment, Start: x.Start, End: x.End}, 1
		}
		ev.Failures = append(ev.Failures, f)
	}
	for _, p := range m.Leaves {
		ev.Leaves = append(ev.Leaves, shardsvc.Leave{Worker: p.Worker, Reason: shardsvc.LeaveReason(p.Reason), Ended: p.Ended, Detail: p.Detail})
	}
	for _, p := range m.Status {
		ev.Status = append(ev.Status, shardsvc.WorkerStatus{Worker: p.Worker, Paused: p.Paused})
	}
	for _, p := range m.Heads {
		ev.Heads = append(ev.Heads, shardsvc.Head{Partition: p.Partition, Segment: p.Segment, End: p.End, Sealed: p.Sealed})
	}
	for _, p := range m.Requests {
		ev.Requests = append(ev.Requests, shardsvc.LeaseRequest{ID: p.Id, Worker: p.Worker, Dataset: p.Dataset, Rate: p.Rate, Count: p.Count, Virtual: p.Virtual})
	}
	for _, p := range m.Calls {
		ev.Calls = append(ev.Calls, w.cutCall(p))
	}
	for _, p := range m.YieldsHeld {
		ev.Yields = append(ev.Yields, shardsvc.YieldsHeld{Worker: p.Worker, Cut: p.Cut, Untracked: p.Untracked})
	}
	return ev
}

func (w *World) cutCall(p *pb.CutCall) shardsvc.CutCall {
	c := shardsvc.CutCall{Worker: p.Worker, ID: p.Id}
	switch k := p.Call.(type) {
	case *pb.CutCall_Ask:
		c.Ask = &shardsvc.CutAsk{Cut: k.Ask.Cut, Step: k.Ask.Step, Carried: k.Ask.Carried, Path: k.Ask.Path,
			Deadline: shardsvc.Time(k.Ask.DeadlineMs) * shardsvc.Millisecond, Exact: k.Ask.Exact, After: k.Ask.After}
	case *pb.CutCall_Bind:
		c.Bind = &shardsvc.CutBind{Cut: k.Bind.Cut, Path: k.Bind.Path}
	case *pb.CutCall_Drop:
		c.Drop = &shardsvc.CutDrop{Cut: k.Drop.Cut, Reason: k.Drop.Reason}
	case *pb.CutCall_Hold:
		c.Hold = &shardsvc.CutHold{Cut: k.Hold.Cut, Deadline: shardsvc.Time(k.Hold.DeadlineMs) * shardsvc.Millisecond}
	case *pb.CutCall_Restore:
		c.Restore = &shardsvc.RestoreCall{Mode: shardsvc.RestoreMode(k.Restore.Mode), Cut: w.body(k.Restore.Body), Path: k.Restore.Path, Failed: k.Restore.Failed, After: k.Restore.After}
	}
	return c
}

// outbox gathers the replies of one batch for one session, as serve's does:
// fields of one message take effect in the order of their numbers.
type outbox struct {
	l        *link
	msgs     []*pb.MasterMessage
	standing bool // the last message has one
	grants   bool
	echo     int64
	close    string
}

func (o *outbox) add(w *World, r *shardsvc.Reply, pieces []shardsvc.Piece) {
	var fits bool
	switch r.Kind {
	case shardsvc.ReplyAck, shardsvc.ReplyStanding:
		fits = true
	case shardsvc.ReplyGrant:
		fits = !o.standing
	default:
		fits = !o.grants
	}
	if len(o.msgs) == 0 || !fits {
		o.msgs = append(o.msgs, &pb.MasterMessage{})
		o.standing, o.grants = false, false
	}
	m := o.msgs[len(o.msgs)-1]
	switch r.Kind {
	case shardsvc.ReplyHello:
		m.Term = r.Term
		if m.Hello == nil {
			m.Hello = &pb.HelloReply{}
		}
		m.Hello.Protocol, m.Hello.Job, m.Hello.Model, m.Hello.Term, m.Hello.Epoch = 1, "sim", w.plan.model, r.Term, r.Epoch
		m.Hello.SessionTtlMs = uint32(w.plan.ttl / millisecond)
	case shardsvc.ReplyHeld:
		if m.Hello == nil {
			m.Hello = &pb.HelloReply{}
		}
		m.Hello.Held = append(m.Hello.Held, &pb.HeldReply{Was: wireToken(r.Was), Token: wireToken(r.Token), Refused: r.Refused, Reason: r.Reason, Prefix: r.Prefix, LeaseEnd: r.End})
	case shardsvc.ReplyJoin:
		m.Joins = append(m.Joins, &pb.JoinReply{Worker: r.Worker, Refused: r.Refused, Reason: r.Reason, Generation: r.Generation, Epoch: r.Epoch, LastStep: r.Step, PendingAgain: r.Units})
	case shardsvc.ReplyAck:
		m.Acks = append(m.Acks, &pb.AckResult{Token: wireToken(r.Token), Prefix: r.Prefix, Code: pb.AckResult_Code(r.Code), Reason: r.Reason})
	case shardsvc.ReplySteal:
		m.StealAsks = append(m.StealAsks, &pb.StealAsk{Token: wireToken(r.Token), At: r.At})
	case shardsvc.ReplyRevoke:
		m.Revokes = append(m.Revokes, &pb.Revoke{Token: wireToken(r.Token), Reason: r.Reason})
	case shardsvc.ReplyEnd:
		m.Ends = append(m.Ends, &pb.EndWorker{Worker: r.Worker, Reason: r.Reason})
	case shardsvc.ReplyFence:
		m.Fences = append(m.Fences, &pb.Fence{Worker: r.Worker, Reason: r.Reason})
	case shardsvc.ReplyGrant:
		o.grants = true
		g := &pb.Grant{Request: r.Request, Token: wireToken(r.Token), Worker: r.Worker, Dataset: r.Dataset, Partition: r.Partition, Identity: r.Identity, Pass: r.Pass,
			Segment: r.Segment, LeaseStart: r.Start, LeaseEnd: r.End, Tries: r.Tries}
		for _, p := range pieces[r.PieceLo:r.PieceHi] {
			g.Pieces = append(g.Pieces, &pb.Piece{OrderStart: p.OrderStart, Segment: p.Segment, Start: p.Start, End: p.End})
		}
		m.Grants = append(m.Grants, g)
	case shardsvc.ReplyStanding:
		o.standing = true
		m.Standings = append(m.Standings, &pb.Standing{Request: r.Request, Worker: r.Worker, Dataset: r.Dataset, State: pb.Standing_State(r.State), Reason: r.Reason})
	case shardsvc.ReplyCut:
		c := &pb.CutReply{Worker: r.Worker, Id: r.Request, Code: pb.CutReply_Code(r.Cut.Code), Reason: r.Reason, Cut: r.Cut.Cut, Step: r.Step,
			Path: r.Cut.Path, Again: r.Units, Epoch: r.Epoch}
		if r.Cut.Body != nil {
			c.Body = w.bodyOf(r.Cut.Body)
		}
		m.CutReplies = append(m.CutReplies, c)
	case shardsvc.ReplyHold:
		m.HoldYields = append(m.HoldYields, &pb.HoldYields{Worker: r.Worker, Cut: r.Cut.Cut, On: !r.Refused, Reason: r.Reason})
	case shardsvc.ReplyClose:
		o.close = r.Reason
	}
}
