package sim

import (
	"fmt"
	"strings"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/protobuf/proto"
)

// span writes virtual time in seconds.
type span Time

func (s span) String() string { return fmt.Sprintf("%.6fs", float64(s)/1e9) }

// tracef writes one line: when, who, what.
func (w *World) tracef(who, format string, args ...any) {
	if w.tracing {
		fmt.Fprintf(w.out, "%12.6f  %-16s %s\n", float64(w.now)/1e9, who, fmt.Sprintf(format, args...))
	}
}

func (w *World) tracePlan() {
	if !w.tracing {
		return
	}
	p := &w.plan
	w.tracef("plan", "model %s, %d ranks on %d nodes, ttl %v, history %d, %d records in all passes", p.model, p.ranks, p.nodes, span(p.ttl), p.history, w.records)
	w.tracef("plan", "batches of up to %d rows, %d a step, window %d, pace %v, delay %v, commit %v, max wait %v, max pending %d", p.rows, p.accumulate, p.window, span(p.pace), span(p.delay), span(p.commit), span(p.maxWait), p.maxPending)
	for _, d := range p.datasets {
		w.tracef("plan", "dataset %s %+v", d.name, d.opt)
	}
	for _, q := range w.input.parts {
		for _, s := range q.segs {
			w.tracef("plan", "%s segment %d [%d, %d) %d records from number %d", q.identity, s.id, s.start, s.end, len(s.begins), s.first)
		}
	}
	for _, t := range p.kinds {
		w.tracef("plan", "until %v: %s", span(p.trouble), t.name)
	}
}

func token(t shardsvc.Token) string {
	return fmt.Sprintf("%d.%d.%d.%d", t.Epoch, t.Term, t.Sequence&(1<<24-1), t.Sequence>>24)
}

func wireTok(t *pb.Token) string { return token(wire.Token(t)) }

var stateNames = [...]string{"wait", "drained", "END", "paused", "FAILED", "recovering", "deleted", "restore"}

func replyText(r *shardsvc.Reply, pieces []shardsvc.Piece) string {
	var s string
	switch r.Kind {
	case shardsvc.ReplyHello:
		s = fmt.Sprintf("hello term %d epoch %d", r.Term, r.Epoch)
	case shardsvc.ReplyHeld:
		s = fmt.Sprintf("held %s [%d, %d) refused=%v", token(r.Token), r.Prefix, r.End, r.Refused)
	case shardsvc.ReplyJoin:
		s = fmt.Sprintf("joined worker %d generation %d epoch %d step %d again %d refused=%v", r.Worker, r.Generation, r.Epoch, r.Step, r.Units, r.Refused)
	case shardsvc.ReplyAck:
		s = fmt.Sprintf("ack %s prefix %d %s", token(r.Token), r.Prefix, [...]string{"durable", "STALE", "INVALID"}[r.Code])
	case shardsvc.ReplySteal:
		s = fmt.Sprintf("steal? %s at %d", token(r.Token), r.At)
	case shardsvc.ReplyRevoke:
		s = fmt.Sprintf("revoke %s", token(r.Token))
	case shardsvc.ReplyEnd:
		s = fmt.Sprintf("end worker %d", r.Worker)
	case shardsvc.ReplyFence:
		s = fmt.Sprintf("fence worker %d", r.Worker)
	case shardsvc.ReplyGrant:
		s = fmt.Sprintf("grant #%d to worker %d: %s %s pass %d segment %d [%d, %d)", r.Request, r.Worker, token(r.Token), r.Identity, r.Pass, r.Segment, r.Start, r.End)
		if ps := pieces[r.PieceLo:r.PieceHi]; len(ps) != 1 || ps[0].OrderStart != ps[0].Start {
			for _, p := range ps {
				s += fmt.Sprintf(" %d:%d[%d, %d)", p.OrderStart, p.Segment, p.Start, p.End)
			}
		}
	case shardsvc.ReplyStanding:
		s = fmt.Sprintf("standing #%d worker %d dataset %d: %s", r.Request, r.Worker, r.Dataset, stateNames[r.State])
	case shardsvc.ReplyCut:
		s = fmt.Sprintf("call %d of worker %d: code %d cut %x step %d path %s again %d", r.Request, r.Worker, r.Cut.Code, r.Cut.Cut, r.Step, r.Cut.Path, r.Units)
	case shardsvc.ReplyPause:
		s = fmt.Sprintf("hold worker %d for cut %x: on=%v", r.Worker, r.Cut.Cut, !r.Refused)
	case shardsvc.ReplyRound:
		s = fmt.Sprintf("rounds of series %d of dataset %d to worker %d: %+v", r.Request, r.Dataset, r.Worker, r.Round.Decision)
	case shardsvc.ReplyClose:
		s = "close"
	default:
		s = fmt.Sprintf("%+v", *r)
	}
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	return fmt.Sprintf("to session %d: %s", r.To, s)
}

var reportNames = map[shardsvc.ReportKind]string{
	shardsvc.ReportReclaimed: "reclaimed", shardsvc.ReportStealAsked: "steal asked", shardsvc.ReportStolen: "stolen", shardsvc.ReportStealRefused: "steal refused",
	shardsvc.ReportAckRefused: "ack refused", shardsvc.ReportDatasetDone: "dataset done", shardsvc.ReportPassDone: "pass done", shardsvc.ReportDatasetFailed: "dataset failed",
	shardsvc.ReportDiverged: "diverged", shardsvc.ReportNeedSegments: "needs segments", shardsvc.ReportGeneration: "generation", shardsvc.ReportGenerationEnded: "generation ended",
	shardsvc.ReportPendingAgain: "pending again", shardsvc.ReportStalled: "stalled", shardsvc.ReportExpired: "expired", shardsvc.ReportGivenUp: "given up", shardsvc.ReportRecovered: "recovered",
	shardsvc.ReportCutFrozen: "cut frozen", shardsvc.ReportCutBound: "cut bound", shardsvc.ReportCutMemory: "cut in memory", shardsvc.ReportCutVoided: "cut voided", shardsvc.ReportCutDropped: "cut dropped",
	shardsvc.ReportResolveCut: "is it on storage?", shardsvc.ReportRestored: "restored", shardsvc.ReportRewound: "rewound", shardsvc.ReportRestoreMissing: "not all restored",
	shardsvc.ReportHeldRefused: "held refused", shardsvc.ReportRejected: "rejected", shardsvc.ReportFenced: "fenced", shardsvc.ReportPauseEnded: "hold ended",
	shardsvc.ReportRestoreWaits: "restore waits", shardsvc.ReportExcluded: "excluded", shardsvc.ReportReadmitted: "not excluded any more", shardsvc.ReportRoundsDropped: "rounds dropped",
}

func reportText(r *shardsvc.Report) string {
	s := fmt.Sprintf("%s: %s pass %d segment %d [%d, %d) units %d rank %d", reportNames[r.Kind], r.Label, r.Pass, r.Segment, r.Start, r.End, r.Units, r.Rank)
	if r.Cut != 0 || r.Step != 0 {
		s += fmt.Sprintf(" cut %x step %d", r.Cut, r.Step)
	}
	if r.Agent != "" {
		s += " agent " + r.Agent
	}
	if why := r.Why(); why != "" {
		s += " (" + why + ")"
	}
	return s
}

// putText is one change of the store.
func putText(p shardsvc.Put) string {
	return fmt.Sprintf("%s %c %x = %x", [...]string{"set", "delete", "delete range"}[p.Op], p.Key[0], p.Key[1:], p.Value)
}

// messageText is an agent's message in the order in which it takes effect.
func messageText(text []byte) string {
	m := &pb.AgentMessage{}
	if err := proto.Unmarshal(text, m); err != nil {
		return err.Error()
	}
	var b strings.Builder
	if h := m.Hello; h != nil {
		fmt.Fprintf(&b, "hello %s.%d; ", h.Agent, h.Incarnation)
	}
	for _, j := range m.Joins {
		fmt.Fprintf(&b, "join worker %d rank %d.%d generation %d; ", j.Worker, j.Rank, j.Incarnation, j.Generation)
	}
	for _, h := range m.Held {
		fmt.Fprintf(&b, "held %s worker %d part %d pass %d segment %d [%d, %d) frontier %d; ", wireTok(h.Token), h.Worker, h.Partition, h.Pass, h.Segment, h.LeaseStart, h.LeaseEnd, h.Frontier)
	}
	for _, a := range m.Acks {
		fmt.Fprintf(&b, "ack %s prefix %d step %d; ", wireTok(a.Token), a.Prefix, a.Step)
	}
	for _, s := range m.Steps {
		fmt.Fprintf(&b, "worker %d is at step %d; ", s.Worker, s.Step)
	}
	for _, s := range m.StealAnswers {
		fmt.Fprintf(&b, "steal %s at %d refused=%v; ", wireTok(s.Token), s.At, s.Refused)
	}
	for _, r := range m.Releases {
		fmt.Fprintf(&b, "release %s from %d; ", wireTok(r.Token), r.Prefix)
	}
	for _, f := range m.Failures {
		fmt.Fprintf(&b, "failed %s at %d; ", wireTok(f.Token), f.At)
	}
	for _, l := range m.Leaves {
		fmt.Fprintf(&b, "leave worker %d %v ended=%v; ", l.Worker, l.Reason, l.Ended)
	}
	for _, c := range m.Calls {
		fmt.Fprintf(&b, "%v; ", c)
	}
	for _, h := range m.YieldsPaused {
		fmt.Fprintf(&b, "worker %d yields nothing, for cut %x; ", h.Worker, h.Cut)
	}
	for _, r := range m.Requests {
		fmt.Fprintf(&b, "request #%d worker %d dataset %d rate %.1f; ", r.Id, r.Worker, r.Dataset, r.Rate)
	}
	for _, r := range m.Rounds {
		fmt.Fprintf(&b, "worker %d of dataset %d series %d", r.Worker, r.Dataset, r.Series)
		if r.Virtual > 0 {
			fmt.Fprintf(&b, " virtual rank %d", r.Virtual-1)
		}
		fmt.Fprintf(&b, " is ready through round %d, more=%v drained=%v newest=%d closed=%v done=%v; ", r.Through, r.More, r.Drained, r.Newest, r.Closed, r.Done)
	}
	if b.Len() == 0 {
		return "heartbeat"
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// trace writes what an event did to an agent's core.
func (a *agent) trace(ev hold.Event) {
	switch ev := ev.(type) {
	case *hold.Deliver:
		a.w.tracef(a.name, "deliver to worker %d stream %d, sizes %v takes %v: verdict %d", ev.Stream.Worker, ev.Stream.Number, ev.Sizes, ev.Takes, a.fx.Verdict)
	case *hold.Gone:
		a.w.tracef(a.name, "worker %d is gone: %v ended=%v", ev.Worker, ev.Reason, ev.Ended)
	case *hold.Exhausted:
		a.w.tracef(a.name, "lease %d is read, tail %d", ev.Lease, ev.Tail)
	case *hold.Join:
		a.w.tracef(a.name, "worker %d is rank %d.%d, resumes %d streams", ev.Join.Worker, ev.Join.Rank, ev.Join.Incarnation, len(ev.Resume))
	}
	for _, g := range a.fx.Grants {
		a.w.tracef(a.name, "lease %d is %s for worker %d", g.Lease, wireTok(g.Grant.Token), g.Stream.Worker)
	}
	for _, e := range a.fx.Ends {
		a.w.tracef(a.name, "lease %d ends at %d", e.Lease, e.End)
	}
	for _, k := range a.fx.Kill {
		a.w.tracef(a.name, "ends worker %d: %s", k.Worker, k.Reason)
	}
	if a.fx.Reconnect != "" {
		a.w.tracef(a.name, "connects again: %s", a.fx.Reconnect)
	}
}
