package hold_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// TestScenarios replays testdata/scenarios. Each command is an event. The lines below it record the
// effects of the core; `-rewrite` records them anew. Any command takes t=<ms>: the time of this and
// all later commands.
//
//	connect | disconnect | tick | dump
//	join worker=1 rank=0      input: resume lines, one a batch: stream=1 number=2 step=5 lease=1.1.3 0-50 records=7/5-9
//	open stream=1 [untracked] | hungry stream=1 | close stream=1 | gone worker=1 [lost]
//	deliver stream=1          input: one batch a line: lease:to lease:to=rows/oldest-newest
//	step stream=1 step=5 batches=1 [through=3] [run=2]
//	ping                      asks how long the session is good, in ms
//	yieldsnothing cut=77      YIELDS_PAUSED, for a pause that recv has begun
//	ask id=1 cut=77 step=5    a call about cuts; restore: another one, with id 1
//	head lease=1 at=40 [waits]
//	exhausted lease=1 tail=90 | failed lease=1 at=40 [permanent]
//	recv                      input: hello, held, join, ack, steal, revoke, end, fence, grant, standing, cut, pause, echo lines
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &scenario{core: hold.New(hold.Config{Hello: &pb.Hello{Agent: "a", Protocol: 1}, Prefetch: time.Second, AckDelay: 2 * time.Millisecond}), now: 1e6}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	core *hold.Core
	now  hold.Time
	fx   hold.Effects
}

func arg[T any](d *datadriven.TestData, t *testing.T, key string, v *T) {
	if d.HasArg(key) {
		d.ScanArgs(t, key, v)
	}
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	ms := s.now / 1e6
	arg(d, t, "t", &ms)
	s.now = ms * 1e6
	var worker, stream uint32 = 1, 1
	arg(d, t, "worker", &worker)
	arg(d, t, "stream", &stream)
	id := hold.Stream{Worker: worker, Number: stream}
	var lease int
	var at, tail, step int64
	var batches, through, run uint32
	arg(d, t, "lease", &lease)
	arg(d, t, "at", &at)
	arg(d, t, "tail", &tail)
	arg(d, t, "step", &step)
	arg(d, t, "batches", &batches)
	arg(d, t, "through", &through)
	arg(d, t, "run", &run)
	switch d.Cmd {
	case "connect":
		return s.do(&hold.Connected{})
	case "disconnect":
		return s.do(&hold.Disconnected{})
	case "tick":
		return s.do(&hold.Tick{})
	case "dump":
		return s.core.Dump()
	case "join":
		var rank, gen uint32
		arg(d, t, "rank", &rank)
		arg(d, t, "gen", &gen)
		return s.do(&hold.Join{Join: &pb.Join{Worker: worker, Rank: rank, Generation: gen}, Resume: resumes(d.Input), Ended: d.HasArg("ended")})
	case "open":
		return s.do(&hold.Open{Stream: id, Dataset: 1, Tracked: !d.HasArg("untracked"), Strict: d.HasArg("strict")})
	case "hungry":
		return s.do(&hold.Hungry{Stream: id})
	case "close":
		return s.do(&hold.Close{Stream: id})
	case "gone":
		if d.HasArg("lost") {
			return s.do(&hold.Gone{Worker: worker, Reason: pb.Leave_LOST})
		}
		return s.do(&hold.Gone{Worker: worker, Reason: pb.Leave_EXITED, Ended: true, Crash: d.HasArg("crash")})
	case "deliver":
		ev := &hold.Deliver{Stream: id}
		for line := range strings.Lines(d.Input) {
			cuts := strings.Fields(line)
			ev.Sizes = append(ev.Sizes, int32(len(cuts)))
			for _, c := range cuts {
				var k hold.Take
				c, records, _ := strings.Cut(c, "=")
				scan(c, "%d:%d", &k.Lease, &k.To)
				k.Tally, _ = tally(records)
				ev.Takes = append(ev.Takes, k)
			}
		}
		return s.do(ev)
	case "step":
		return s.do(&hold.Stepped{Stream: id, Step: step, Batches: batches, Through: through, Run: run})
	case "ask":
		var call, cut uint64
		arg(d, t, "id", &call)
		arg(d, t, "cut", &cut)
		return s.do(&hold.Call{Call: &pb.CutCall{Worker: worker, Id: call, Call: &pb.CutCall_Ask{Ask: &pb.CutAsk{Cut: cut, Step: step}}}})
	case "ping":
		done := s.do(&hold.Ping{Worker: worker})
		if s.fx.Mute {
			return "no answer\n" + done
		}
		return fmt.Sprintf("pong %d\n", s.fx.Session/1e6) + done
	case "yieldsnothing":
		var cut uint64
		arg(d, t, "cut", &cut)
		return s.do(&hold.YieldsPaused{Worker: worker, Cut: cut})
	case "restore":
		return s.do(&hold.Call{Call: &pb.CutCall{Worker: worker, Id: 1, Call: &pb.CutCall_Restore{Restore: &pb.Restore{}}}})
	case "head":
		return s.do(&hold.HeadSeen{Lease: hold.Lease(lease), Head: at, Waits: d.HasArg("waits")})
	case "exhausted":
		return s.do(&hold.Exhausted{Lease: hold.Lease(lease), Tail: tail})
	case "failed":
		return s.do(&hold.Failed{Lease: hold.Lease(lease), At: at, Permanent: d.HasArg("permanent"), Kind: "decode", Message: "bad record"})
	case "recv":
		return s.do(&hold.Received{Message: message(t, d.Input)})
	}
	t.Fatalf("%s: no command %q", d.Pos, d.Cmd)
	return ""
}

func scan(text, format string, into ...any) {
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		panic(fmt.Sprintf("%q is not %q: %v", text, format, err))
	}
}

func resumes(input string) (all []hold.Resume) {
	for line := range strings.Lines(input) {
		line, records, _ := strings.Cut(line, " records=")
		var number uint32
		var step int64
		var token hold.Token
		var from, to int64
		var stream uint32
		scan(line, "stream=%d number=%d step=%d lease=%d.%d.%d %d-%d", &stream, &number, &step, &token.Epoch, &token.Term, &token.Sequence, &from, &to)
		if n := len(all); n == 0 || all[n-1].Stream != stream {
			all = append(all, hold.Resume{Stream: stream, Dataset: 1, Tracked: true, Acked: number - 1, Stepped: number - 1})
		}
		r := &all[len(all)-1]
		b := hold.ResumedBatch{Number: number, Stepped: step > 0, Step: step,
			Spans: []hold.Span{{Token: token, Dataset: 1, Partition: 1, From: from, To: to}}}
		b.Spans[0].Tally, b.Spans[0].Told = tally(records)
		if b.Stepped {
			r.Stepped = number
		}
		r.Batches = append(r.Batches, b)
	}
	return all
}

// tally reads "rows" or "rows/oldest-newest".
func tally(text string) (t hold.Tally, told bool) {
	text = strings.TrimSpace(text)
	if text == "" {
		return t, false
	}
	if !strings.Contains(text, "/") {
		text += "/0-0"
	}
	scan(text, "%d/%d-%d", &t.Rows, &t.Oldest, &t.Newest)
	return t, true
}

func token(text string) *pb.Token {
	t := &pb.Token{}
	scan(text, "%d.%d.%d", &t.Epoch, &t.Term, &t.Sequence)
	return t
}

func message(t *testing.T, input string) *pb.MasterMessage {
	m := &pb.MasterMessage{}
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		switch f[0] {
		case "hello": // hello model term ttl
			m.Hello = &pb.HelloReply{Protocol: 1, Job: "job", Model: f[1], Epoch: 1}
			scan(f[2]+" "+f[3], "%d %d", &m.Hello.Term, &m.Hello.SessionTtlMs)
		case "held": // held was token prefix end | held was refused
			h := &pb.HeldReply{Was: token(f[1]), Refused: f[2] == "refused"}
			if h.Refused {
				h.Reason = "its rows are with others"
			} else {
				h.Token = token(f[2])
				scan(f[3]+" "+f[4], "%d %d", &h.Prefix, &h.LeaseEnd)
			}
			if m.Hello == nil { // the rest of a HelloReply that came in parts
				m.Hello = &pb.HelloReply{}
			}
			m.Hello.Held = append(m.Hello.Held, h)
		case "echo":
			scan(f[1], "%d", &m.Echo)
			m.Echo *= 1e6
		case "join": // join worker [step=20 | refused]
			j := &pb.JoinReply{Generation: 1, Epoch: 1}
			scan(f[1], "%d", &j.Worker)
			if len(f) > 2 && strings.HasPrefix(f[2], "step=") {
				scan(f[2], "step=%d", &j.LastStep)
			} else {
				j.Refused, j.Reason = len(f) > 2, strings.Join(f[2:], " ")
			}
			m.Joins = append(m.Joins, j)
		case "ack": // ack token prefix [stale]
			a := &pb.AckResult{Token: token(f[1])}
			scan(f[2], "%d", &a.Prefix)
			if len(f) > 3 {
				a.Code, a.Reason = pb.AckResult_STALE, "unknown token"
			}
			m.Acks = append(m.Acks, a)
		case "steal": // steal token at
			a := &pb.StealAsk{Token: token(f[1])}
			scan(f[2], "%d", &a.At)
			m.StealAsks = append(m.StealAsks, a)
		case "revoke":
			m.Revokes = append(m.Revokes, &pb.Revoke{Token: token(f[1])})
		case "end":
			e := &pb.EndWorker{Reason: "stalled"}
			scan(f[1], "%d", &e.Worker)
			m.Ends = append(m.Ends, e)
		case "fence":
			e := &pb.Fence{Reason: "the generation ended"}
			scan(f[1], "%d", &e.Worker)
			m.Fences = append(m.Fences, e)
		case "grant": // grant request token start-end [HEAD]
			g := &pb.Grant{Token: token(f[2]), Worker: 1, Dataset: 1, Partition: 1}
			scan(f[1]+" "+f[3], "%d %d-%d", &g.Request, &g.LeaseStart, &g.LeaseEnd)
			if len(f) > 4 {
				g.Head = new(int64)
				scan(f[4], "%d", g.Head)
			}
			m.Grants = append(m.Grants, g)
		case "standing": // standing request STATE
			st := &pb.Standing{State: pb.Standing_State(pb.Standing_State_value[f[2]])}
			scan(f[1], "%d", &st.Request)
			m.Standings = append(m.Standings, st)
		case "pause": // pause worker cut on | off
			h := &pb.PauseYields{On: f[3] == "on", Reason: "rank 0 saves"}
			scan(f[1]+" "+f[2], "%d %d", &h.Worker, &h.Cut)
			m.PauseYields = append(m.PauseYields, h)
		case "cut": // cut worker id code [cut [step]]
			r := &pb.CutReply{Code: pb.CutReply_Code(pb.CutReply_Code_value[strings.ToUpper(f[3])]), Reason: "because"}
			scan(f[1]+" "+f[2], "%d %d", &r.Worker, &r.Id)
			if len(f) > 4 {
				scan(f[4], "%d", &r.Cut)
			}
			if len(f) > 5 {
				scan(f[5], "%d", &r.Step)
			}
			m.CutReplies = append(m.CutReplies, r)
		default:
			t.Fatalf("no line %q", line)
		}
	}
	return m
}

var verdicts = map[hold.Verdict]string{hold.Go: "go", hold.Shortened: "shortened", hold.Untrusted: "untrusted", hold.Over: "over"}

func (s *scenario) do(ev hold.Event) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	s.fx.Reset()
	wake := s.core.Step(s.now, ev, &s.fx)
	if err := s.core.Check(); err != nil {
		say("BROKEN: %v", err)
	}
	fx := &s.fx
	if fx.Invalid != "" {
		say("invalid: %s", fx.Invalid)
	}
	if fx.Verdict != hold.None {
		say("%s", verdicts[fx.Verdict])
	}
	for _, m := range fx.Send {
		say("send at %d", m.SentAt/1e6)
		sent(m, say)
	}
	if fx.Reconnect != "" {
		say("reconnect: %s", fx.Reconnect)
	}
	for _, j := range fx.Joined {
		say("joined worker %d refused=%v %s resumed=%v", j.Worker, j.Refused, j.Reason, j.Resumed)
	}
	for _, g := range fx.Grants {
		standing := ""
		if g.Standing != pb.Standing_WAIT {
			standing = ", others " + g.Standing.String()
		}
		say("granted lease %d [%d, %d) to %v%s", g.Lease, g.Grant.LeaseStart, g.Grant.LeaseEnd, g.Stream, standing)
	}
	for _, e := range fx.Ends {
		say("lease %d ends at %d", e.Lease, e.End)
	}
	for _, a := range fx.Acked {
		say("stream %v durable through %d", a.Stream, a.Through)
	}
	for _, r := range fx.Answers {
		say("answer worker %d call %d %s cut %d: %s", r.Worker, r.Id, r.Code, r.Cut, r.Reason)
	}
	for _, x := range fx.States {
		say("stream %v %s", x.Stream, x.State)
	}
	for _, f := range fx.Fenced {
		say("fenced worker %d: %s", f.Worker, f.Reason)
	}
	for _, h := range fx.Pauses {
		say("pause worker %d for cut %d: on=%v, %s", h.Worker, h.Cut, h.On, h.Why)
	}
	for _, k := range fx.Kill {
		say("kill worker %d: %s", k.Worker, k.Reason)
	}
	if fx.Live {
		say("live")
	}
	if wake == hold.Never {
		say("(asleep)")
	} else {
		say("(wake at %d)", wake/1e6)
	}
	return b.String()
}

func text(t *pb.Token) string {
	return fmt.Sprintf("%d.%d.%d", t.GetEpoch(), t.GetTerm(), t.GetSequence())
}

func sent(m *pb.AgentMessage, say func(string, ...any)) {
	if m.Hello != nil {
		say("  hello %s", m.Hello.Agent)
	}
	for _, j := range m.Joins {
		say("  join worker %d rank %d generation %d", j.Worker, j.Rank, j.Generation)
	}
	for _, h := range m.Held {
		say("  held %s worker %d [%d, %d) frontier %d", text(h.Token), h.Worker, h.LeaseStart, h.LeaseEnd, h.Frontier)
	}
	for _, a := range m.Acks {
		records := ""
		if n := a.Tally; n == nil {
			records = ", untold"
		} else if n.Rows > 0 {
			records = fmt.Sprintf(", %d rows of %d to %d from %d on", n.Rows, n.Oldest, n.Newest, a.From)
		}
		say("  ack %s prefix %d step %d%s", text(a.Token), a.Prefix, a.Step, records)
	}
	for _, h := range m.YieldsPaused {
		say("  worker %d yields nothing for cut %d, untracked %d", h.Worker, h.Cut, h.Untracked)
	}
	for _, x := range m.Steps {
		say("  step worker %d: %d", x.Worker, x.Step)
	}
	for _, a := range m.StealAnswers {
		say("  steal %s refused=%v at %d", text(a.Token), a.Refused, a.At)
	}
	for _, r := range m.Releases {
		say("  release %s from %d", text(r.Token), r.Prefix)
	}
	for _, f := range m.Failures {
		say("  failure %s at %d permanent=%v", text(f.Token), f.At, f.Permanent)
	}
	for _, l := range m.Leaves {
		say("  leave worker %d %s ended=%v", l.Worker, l.Reason, l.Ended)
		for _, s := range l.GetCrash().GetSuspects() {
			say("    crashed with [%d, %d), alone=%v", s.Start, s.End, l.Crash.Alone)
		}
	}
	for _, k := range m.Calls {
		say("  call %d worker %d: ask cut %d step %d", k.Id, k.Worker, k.GetAsk().GetCut(), k.GetAsk().GetStep())
	}
	for _, h := range m.Heads {
		say("  head of partition %d segment %d: %d", h.Partition, h.Segment, h.End)
	}
	for _, r := range m.Requests {
		say("  request %d worker %d rate %.0f", r.Id, r.Worker, r.Rate)
	}
}
