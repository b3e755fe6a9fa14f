package shardsvc

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// TestScenarios replays the scripts in testdata/scenarios. Each command is one Step or a few.
// Its result is the transcript. `go test -run TestScenarios -rewrite` records the transcripts.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			s.w.askView(t)
			return out
		})
	})
}

type script struct{ w *world }

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var out bytes.Buffer
	if s.w != nil {
		s.w.t = t
	}
	switch d.Cmd {
	case "new":
		a, before := args{t, d.CmdArgs}, s.w
		s.w = newWorld(t, Config{Job: "j", Model: a.word("model", ""), SessionTTL: a.time("ttl", 0), History: a.num("history", 0), Ahead: int(a.num("ahead", 0))})
		if a.has("manifests") { // keep the manifests of the world before
			s.w.bodies = before.bodies
		}
	case "restart":
		s.w.restart()
		s.print(&out)
	case "advance":
		s.advance(&out, args{t, d.CmdArgs})
	case "state":
		s.state(&out)
	case "excluded":
		all, total := s.w.core.Excluded(1, 0, 100)
		for _, e := range all {
			fmt.Fprintf(&out, "part %d pass %d seg %d [%d, %d) %s: %s, at %d\n", e.Partition, e.Pass, e.Segment, e.Start, e.End, e.Kind, e.Reason, e.When)
		}
		fmt.Fprintf(&out, "%d in all\n", total)
	case "dropped":
		all, total := s.w.core.Dropped(1, 100)
		for _, x := range all {
			fmt.Fprintf(&out, "part %d pass %d seg %d [%d, %d) at step %d\n", x.Partition, x.Pass, x.Segment, x.Start, x.End, x.Step)
		}
		fmt.Fprintf(&out, "%d in all\n", total)
	case "cuts":
		s.cuts(&out)
	case "forget": // the master loses its disk
		clear(s.w.store)
		s.w.restart()
	case "plan":
		a := args{t, d.CmdArgs}
		var deleted []Deletion
		if a.has("low") {
			deleted = append(deleted, a.deletion())
		}
		plan := s.w.core.PlanRewind(s.cut(t, a), deleted)
		for _, a := range plan.Again {
			fmt.Fprintf(&out, "%s part %d pass %d: %d units again\n", a.Name, a.Partition, a.Pass, a.Units)
		}
		for _, k := range plan.Voided {
			fmt.Fprintf(&out, "cut %d would be voided\n", k.ID)
		}
		fmt.Fprintf(&out, "fenced %v, refused %q\n", plan.Fenced, plan.Refused)
		if deleted != nil {
			tellGone(&out, &plan.Gone, "plan")
		}
	case "plan_reclaim":
		a := args{t, d.CmdArgs}
		plan := s.w.core.PlanReclaim(&Reclaim{Rank: uint32(a.num("rank", 0))})
		fmt.Fprintf(&out, "inc=%d agent=%s leases=%d step=%d kept=%d fenced=%v refused=%q\n", plan.Incarnation, plan.Agent, plan.Leases, plan.Step, plan.Kept, plan.Fenced, plan.Refused)
	case "gone":
		s.gone(&out, args{t, d.CmdArgs})
	case "store":
		for _, k := range slices.Sorted(maps.Keys(s.w.store)) {
			fmt.Fprintf(&out, "%s %x = %x\n", k[:1], k[1:], s.w.store[k])
		}
	case "keys":
		for _, k := range slices.Sorted(maps.Keys(s.w.store)) {
			at, err := decodeKey([]byte(k))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out, at)
		}
	case "step":
		for _, line := range strings.Split(d.Input, "\n") {
			s.w.step(s.event(t, line))
			s.print(&out)
		}
	case "msg":
		s.w.step(s.message(t, d))
		s.print(&out)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	if out.Len() == 0 {
		return "ok\n"
	}
	return out.String()
}

func (s *script) print(out *bytes.Buffer) {
	for _, r := range s.w.fx.Replies {
		fmt.Fprintln(out, r.text(s.w.fx.Pieces))
	}
	for _, r := range s.w.fx.Reports {
		fmt.Fprintln(out, r.text())
	}
}

// advance ticks as a shell would: at each wake. Agents named in alive heartbeat.
func (s *script) advance(out *bytes.Buffer, a args) {
	w := s.w
	end := w.now + a.time("by", 0)
	beat := w.now
	alive := strings.Split(a.word("alive", ""), ",")
	for w.now < end {
		next := min(end, max(w.wake, w.now+Millisecond))
		if alive[0] != "" {
			next = min(next, max(beat, w.now+Millisecond))
		}
		w.now = next
		if alive[0] != "" && w.now >= beat {
			beat = w.now + Second
			for _, name := range alive {
				w.step(&Message{Session: w.last[name]})
				s.print(out)
			}
		}
		w.step(&Tick{Blocked: a.time("blocked", 0)})
		s.print(out)
		a.args = slices.DeleteFunc(a.args, func(x datadriven.CmdArg) bool { return x.Key == "blocked" })
	}
}

func (s *script) state(out *bytes.Buffer) {
	c := s.w.core
	j := c.Job()
	fmt.Fprintf(out, "term=%d epoch=%d generation=%d recovering=%v\n", j.Term, j.Epoch, j.Generation, j.Recovering)
	for _, d := range c.Datasets() {
		n := d.Counts
		fmt.Fprintf(out, "ds %d %s: listed=%d planned=%d pending=%d leased=%d acked=%d excluded=%d waiting=%d", d.ID, d.State, n.Listed, n.Planned, n.Pending, n.Leased, n.Acked, n.Excluded, d.Waiting)
		if d.Options.Backfill.Kind != "" {
			n := d.Backfill
			fmt.Fprintf(out, " backfill: listed=%d pending=%d leased=%d acked=%d", n.Listed, n.Pending, n.Leased, n.Acked)
		}
		if d.Reason != "" {
			fmt.Fprintf(out, " (%s)", d.Reason)
		}
		fmt.Fprintln(out)
		for _, p := range c.State(s.w.now, d.ID, 0, 100) {
			m := p.Distances
			fmt.Fprintf(out, "  part %d pass %d: to head acked=%d leased=%d planned=%d\n", p.Number, p.Pass, m.Acked, m.Leased, m.Planned)
			for _, l := range p.Lease {
				fmt.Fprintf(out, "    lease %s rank=%d seg=%d [%d, %d) prefix=%d\n", tok(l.Token), l.Rank, l.Segment, l.Start, l.End, l.Prefix)
			}
		}
	}
	for _, w := range c.Workers() {
		fmt.Fprintf(out, "rank %d inc=%d agent=%s %s step=%d leases=%d\n", w.Rank, w.Incarnation, w.Agent, w.State, w.Step, w.Leases)
	}
}

var resumeWords = map[string]Resume{"": ResumeDefault, "bound": ResumeBound, "acked": ResumeAcked, "start": ResumeStart}

func (s *script) event(t *testing.T, line string) Event {
	cmd, cmdArgs, err := datadriven.ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	a := args{t, cmdArgs}
	ds, part := uint32(a.num("ds", 1)), uint32(a.num("part", 1))
	switch cmd {
	case "dataset":
		opt := Options{Passes: int(a.num("passes", 1)), Strict: a.has("strict"), Shuffle: a.has("block"), Seed: uint64(a.num("seed", 0)), Block: a.num("block", 0),
			Initial: a.num("initial", 10), Min: a.num("min", 1), Max: a.num("max", 1000), Target: a.time("target", 2*Second), Stall: a.time("stall", 0), Unit: "records", GoOnAfterLoss: a.has("continue"), VirtualRanks: uint32(a.num("virtual", 0)), InOrder: a.has("inorder"), Resume: resumeWords[a.word("resume", "")]}
		if kind := a.word("backfill", ""); kind != "" {
			opt.Backfill = Backfill{Kind: kind, Unit: "bytes", Initial: a.num("old_initial", 10), Min: a.num("old_min", 1), Max: a.num("old_max", 1000), NewestFirst: a.has("newest_first")}
		}
		opt.DropOld, opt.Isolate = a.has("drop_old"), a.has("isolate")
		return &ApplyDataset{ID: ds, Name: a.word("name", "clicks"), Spec: []byte("{}"), Options: opt}
	case "partition":
		return &AddPartition{Dataset: ds, Number: part, Identity: a.word("identity", fmt.Sprintf("files:%d", part))}
	case "listed":
		return &PartitionsListed{Dataset: ds}
	case "segments":
		ev := &AddSegments{Partition: part, Complete: a.has("complete")}
		for _, v := range a.list("segs") { // id:start-end; ~ at its end: not sealed
			var g sources.Segment
			if _, err := fmt.Sscanf(v, "%d:%d-%d", &g.ID, &g.Start, &g.End); err != nil {
				t.Fatal(v, err)
			}
			g.Sealed, g.Name, g.Locator = !strings.HasSuffix(v, "~"), fmt.Sprintf("f%d", g.ID), []byte("loc")
			ev.Segments = append(ev.Segments, g)
		}
		return ev
	case "pause":
		return &SetPaused{ID: ds, Paused: true}
	case "resume":
		return &SetPaused{ID: ds}
	case "fail":
		return &FailDataset{ID: ds, Reason: a.word("reason", "?")}
	case "remove":
		return &RemoveDataset{ID: ds}
	case "truncated":
		return &Truncated{Partition: part, Segment: a.num("seg", 0), Start: a.num("start", 0), End: a.num("end", 0), Reason: "the log begins later", When: a.num("when", 1000)}
	case "aged":
		return &Aged{Partition: part, Segment: a.num("seg", 0), Offset: a.num("before", 0), Reason: "older than 1h", When: a.num("when", 1000)}
	case "bindcut":
		return &BindCut{Cut: uint64(a.num("cut", 0)), Path: a.word("path", "")}
	case "dropcut":
		return &DropCut{Cut: uint64(a.num("cut", 0)), Reason: a.word("reason", "")}
	case "settle":
		return &ResolveCut{Cut: uint64(a.num("cut", 0)), Found: a.has("found")}
	case "rewind":
		return &Rewind{Cut: s.cut(t, a), Path: a.word("path", "")}
	case "reclaim":
		return &Reclaim{Rank: uint32(a.num("rank", 0)), Incarnation: uint64(a.num("inc", 0))}
	case "lost":
		return &Lost{Session: s.w.last[a.word("agent", "a")]}
	case "head":
		return &Heads{[]Head{{Partition: part, Segment: a.num("seg", 0), End: a.num("end", 0), Sealed: a.has("sealed"), Fallen: a.has("fallen")}}}
	}
	t.Fatalf("unknown event %q", cmd)
	return nil
}

// message reads `msg agent`, a message on the agent's session. Each line is one part of the
// message. `sent` is the time of sending, by the clock of the agent's node.
func (s *script) message(t *testing.T, d *datadriven.TestData) *Message {
	name := d.CmdArgs[0].Key
	m := &Message{SentAt: args{t, d.CmdArgs}.time("sent", 0)}
	for _, line := range strings.Split(d.Input, "\n") {
		if line == "" {
			continue
		}
		cmd, cmdArgs, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		a := args{t, cmdArgs}
		w, ds := uint32(a.num("w", 1)), uint32(a.num("ds", 1))
		token := func() Token { return parseTok(t, a.word("tok", "")) }
		switch cmd {
		case "hello":
			m.Hello = &Hello{Agent: name, Incarnation: uint64(a.num("inc", 1)), Clock: uint64(a.num("clock", 0))}
			s.w.next++
			s.w.last[name] = s.w.next
		case "join":
			m.Joins = append(m.Joins, Join{Worker: w, Rank: uint32(a.num("rank", 0)), Incarnation: uint64(a.num("inc", 1)), WorldSize: uint32(a.num("world", 1)), Generation: uint32(a.num("gen", 0)),
				Resume: resumeWords[a.word("resume", "")], MadeAt: a.time("made", 0)})
		case "held":
			m.Held = append(m.Held, Held{Token: token(), Worker: w, Dataset: ds, Partition: uint32(a.num("part", 1)), Pass: uint32(a.num("pass", 0)), Segment: a.num("seg", 0),
				Start: a.num("start", 0), End: a.num("end", 0), Frontier: a.num("frontier", 0)})
		case "ack":
			m.Acks = append(m.Acks, Ack{Token: token(), Prefix: a.num("prefix", 0), Step: a.num("step", 0)})
		case "stepped":
			m.Steps = append(m.Steps, StepReport{Worker: w, Step: a.num("step", 0)})
		case "answer":
			m.Answers = append(m.Answers, StealAnswer{Token: token(), Refused: a.has("refused"), At: a.num("at", 0)})
		case "release":
			m.Releases = append(m.Releases, Release{Token: token(), Prefix: a.num("prefix", 0)})
		case "failure":
			f := ReadFailure{Token: token(), At: a.num("at", 0), Permanent: a.has("permanent"), Away: a.word("kind", "io") == "away", Kind: a.word("kind", "io"), Message: "disk on fire"}
			if a.has("lost") {
				f.Kind, f.Message, f.When = "truncated", "the log begins later", 2000
				f.Lost = &LostRange{Segment: a.num("seg", 0), Start: a.num("lost", 0), End: a.num("to", 0)}
			}
			m.Failures = append(m.Failures, f)
		case "leave":
			k := Leave{Worker: w, Ended: a.has("ended"), Reason: map[string]LeaveReason{"closed": LeaveClosed, "killed": LeaveKilled, "lost": LeaveLost}[a.word("why", "lost")]}
			for _, v := range a.list("crash") { // start-end: the records that the trainer had in hand
				x := Suspect{Dataset: ds, Partition: uint32(a.num("part", 1))}
				if _, err := fmt.Sscanf(v, "%d-%d", &x.Start, &x.End); err != nil {
					t.Fatal(v, err)
				}
				if k.Crash == nil {
					k.Crash = &Crash{Alone: a.has("alone")}
				}
				k.Crash.Suspects = append(k.Crash.Suspects, x)
			}
			m.Leaves = append(m.Leaves, k)
		case "ask":
			m.Calls = append(m.Calls, CutCall{Worker: w, ID: uint64(a.num("id", 1)), Ask: &CutAsk{Cut: uint64(a.num("cut", 0)), Step: a.num("step", 0), Carried: a.has("carried"), Path: a.word("path", ""), Deadline: a.time("deadline", 0), Exact: a.has("exact"), Memory: a.has("memory")}})
		case "bind":
			m.Calls = append(m.Calls, CutCall{Worker: w, ID: uint64(a.num("id", 1)), Bind: &CutBind{Cut: uint64(a.num("cut", 0)), Path: a.word("path", "")}})
		case "drop":
			m.Calls = append(m.Calls, CutCall{Worker: w, ID: uint64(a.num("id", 1)), Drop: &CutDrop{Cut: uint64(a.num("cut", 0)), Reason: a.word("reason", "")}})
		case "pauseyields":
			m.Calls = append(m.Calls, CutCall{Worker: w, ID: uint64(a.num("id", 1)), Pause: &CutPause{Cut: uint64(a.num("cut", 0)), Deadline: a.time("deadline", 0)}})
		case "yieldspaused":
			m.Yields = append(m.Yields, YieldsPaused{Worker: w, Cut: uint64(a.num("cut", 0)), Untracked: uint32(a.num("untracked", 0))})
		case "restore":
			k := &RestoreCall{Mode: map[string]RestoreMode{"newest": RestoreNewest, "exact": RestoreExact, "start": RestoreStart}[a.word("mode", "newest")], Cut: s.cut(t, a), Path: a.word("path", ""), Memory: a.has("memory"), Waited: a.time("waited", 0)}
			k.Tells = a.has("readable")
			for _, v := range a.list("readable") {
				if v != "none" {
					k.Readable = append(k.Readable, uint64(args{t, []datadriven.CmdArg{{Key: "n", Vals: []string{v}}}}.num("n", 0)))
				}
			}
			for _, v := range a.list("failed") {
				k.Failed = append(k.Failed, uint64(args{t, []datadriven.CmdArg{{Key: "n", Vals: []string{v}}}}.num("n", 0)))
			}
			m.Calls = append(m.Calls, CutCall{Worker: w, ID: uint64(a.num("id", 1)), Restore: k})
		case "round":
			m.Rounds = append(m.Rounds, RoundReport{Worker: w, Dataset: ds, Series: 1, Through: uint32(a.num("through", 0)), More: a.has("more"), Drained: a.has("drained"), Newest: uint64(a.num("newest", 0)), Closed: a.has("closed"),
				Endless: a.has("endless"), Drop: a.has("drop"), Done: a.has("done"), ToldLast: a.has("told_last"), MaxWait: a.time("max_wait", 0), Again: a.has("again"), Told: uint32(a.num("told", 0)),
				Rows: numbers[uint32](t, a.list("rows")), ToldRows: numbers[uint64](t, a.list("told_rows")), Virtual: uint32(a.num("virtual", 0))})
		case "status":
			m.Status = append(m.Status, WorkerStatus{Worker: w, Paused: a.has("paused")})
		case "head":
			m.Heads = append(m.Heads, Head{Partition: uint32(a.num("part", 1)), Segment: a.num("seg", 0), End: a.num("end", 0), Sealed: a.has("sealed")})
		case "request":
			m.Requests = append(m.Requests, LeaseRequest{ID: uint64(a.num("id", 1)), Worker: w, Dataset: ds, Rate: float64(a.num("rate", 0)), BackfillRate: float64(a.num("old_rate", 0)), Count: uint32(a.num("count", 1)), Virtual: uint32(a.num("virtual", 0))})
		default:
			t.Fatalf("unknown part %q", cmd)
		}
	}
	m.Session = s.w.last[name]
	return m
}

// cut returns the body of `cut=id` from the last answer that had it.
func (s *script) cut(t *testing.T, a args) *cut.Cut {
	id := uint64(a.num("cut", 0))
	if id == 0 {
		return nil
	}
	k := s.w.bodies[id]
	if k == nil {
		t.Fatalf("no answer before this line had the body of cut %d", id)
	}
	return k
}

func (s *script) cuts(out *bytes.Buffer) {
	c := s.w.core
	for _, k := range c.Cuts() {
		fmt.Fprintf(out, "%d %s epoch=%d generation=%d rank=%d step=%d acked=%d path=%s\n", k.ID, k.State, k.Epoch, k.Generation, k.Rank, k.Step, k.Units.Acked, k.Path)
	}
	for _, d := range c.Datasets() {
		for i, m := range c.BoundMarks(d.ID) {
			h := c.RetainMarks(d.ID)[i]
			fmt.Fprintf(out, "part %d: bound pass %d seg %d offset %d, retain pass %d seg %d offset %d\n", m.Partition, m.Pass, m.Segment, m.Offset, h.Pass, h.Segment, h.Offset)
		}
	}
}

type args struct {
	t    *testing.T
	args []datadriven.CmdArg
}

// gone prints, for each cut and for the start, the deleted records that going back there needs.
func (s *script) gone(out *bytes.Buffer, a args) {
	all := []Deletion{a.deletion()}
	for _, k := range s.w.core.Cuts() {
		g := s.w.core.GoneOf(k.ID, all)
		tellGone(out, &g, fmt.Sprint("cut ", k.ID))
	}
	plan := s.w.core.PlanRewind(nil, all)
	tellGone(out, &plan.Gone, "start")
}

// deletion reads what the source has deleted: everything below `low` of a segment, or the whole partition.
func (a args) deletion() Deletion {
	return Deletion{Dataset: 1, Source: a.word("source", "files:1"), Segment: a.num("seg", 0), Low: a.num("low", 0), All: a.has("all")}
}

func tellGone(out *bytes.Buffer, g *Gone, what string) {
	for _, x := range g.Ranges {
		fmt.Fprintf(out, "%s: %s passes %d+%d seg %d [%d, %d)", what, x.Label, x.Pass, x.Passes, x.Segment, x.Start, x.End)
		if x.Stops {
			fmt.Fprint(out, " stops")
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%s: %d units, more %d, at least %v\n", what, g.Units, g.More, g.AtLeast)
}

func (a args) has(key string) bool {
	return slices.ContainsFunc(a.args, func(x datadriven.CmdArg) bool { return x.Key == key })
}

func (a args) list(key string) []string {
	for _, x := range a.args {
		if x.Key == key {
			return x.Vals
		}
	}
	return nil
}

func (a args) word(key, def string) string {
	if v := a.list(key); len(v) > 0 {
		return strings.Join(v, ",")
	}
	return def
}

func (a args) num(key string, def int64) int64 {
	v := a.word(key, "")
	if v == "" {
		return def
	}
	if v == "max" {
		return math.MaxInt64
	}
	var n int64
	if _, err := fmt.Sscan(v, &n); err != nil {
		a.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return n
}

func (a args) time(key string, def Time) Time {
	v := a.word(key, "")
	if v == "" {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return Time(d)
}

// numbers parses a list of numbers.
func numbers[N uint32 | uint64](t testing.TB, list []string) (all []N) {
	for _, v := range list {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, N(n))
	}
	return all
}
