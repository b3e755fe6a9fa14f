package shardsvc

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
)

// world is a core with a store in memory. Every Step is flushed, committed and checked. A
// crash loses what was not committed.
type world struct {
	t     testing.TB
	cfg   Config
	core  *Core
	now   Time
	wake  Time
	store map[string][]byte
	fx    Effects
	next  Session
	last  map[string]Session // by agent

	bodies map[uint64]*cut.Cut // of the cuts that the core has answered
}

func newWorld(t testing.TB, cfg Config) *world {
	w := &world{t: t, cfg: cfg, now: 1000 * Second, store: map[string][]byte{}, last: map[string]Session{}, bodies: map[uint64]*cut.Cut{}}
	w.restart()
	return w
}

// restart makes a new core from the store and starts a term.
func (w *world) restart() {
	w.core = New(w.cfg)
	for _, k := range slices.Sorted(maps.Keys(w.store)) {
		if err := w.core.Load([]byte(k), w.store[k]); err != nil {
			w.t.Fatalf("load %x: %v", k, err)
		}
	}
	if err := w.core.Loaded(); err != nil {
		w.t.Fatal(err)
	}
	w.step(&Start{})
}

func (w *world) step(ev Event) {
	w.fx.Reset()
	w.wake = w.core.Step(w.now, ev, &w.fx)
	w.core.Flush(&w.fx)
	commit(w.store, w.fx.Puts)
	for _, r := range w.fx.Replies {
		if r.Kind == ReplyCut && r.Cut.Body != nil {
			w.bodies[r.Cut.Cut] = r.Cut.Body
		}
	}
	if err := w.core.CheckInvariants(); err != nil {
		w.t.Fatalf("after %T: %v", ev, err)
	}
}

func commit(store map[string][]byte, puts []Put) {
	for _, p := range puts {
		switch p.Op {
		case Set:
			store[string(p.Key)] = bytes.Clone(p.Value)
		case Delete:
			delete(store, string(p.Key))
		case DeleteRange:
			for k := range store {
				if k >= string(p.Key) && k < string(p.Value) {
					delete(store, k)
				}
			}
		}
	}
}

// tok writes a token as epoch.term.slot.number.
func tok(k Token) string {
	return fmt.Sprintf("%d.%d.%d.%d", k.Epoch, k.Term, k.Sequence&(1<<slotBits-1), k.Sequence>>slotBits)
}

func parseTok(t testing.TB, s string) (k Token) {
	var slot, number uint64
	if _, err := fmt.Sscanf(s, "%d.%d.%d.%d", &k.Epoch, &k.Term, &slot, &number); err != nil {
		t.Fatalf("token %q: %v", s, err)
	}
	k.Sequence = number<<slotBits | slot
	return k
}

func (r Reply) text(pieces []Piece) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "-> %d ", r.To)
	switch r.Kind {
	case ReplyHello:
		fmt.Fprintf(&b, "hello term=%d epoch=%d", r.Term, r.Epoch)
	case ReplyHeld:
		if fmt.Fprintf(&b, "held %s", tok(r.Token)); r.Refused {
			fmt.Fprintf(&b, " REFUSED")
		} else {
			fmt.Fprintf(&b, " [%d, %d)", r.Prefix, r.End)
		}
	case ReplyJoin:
		fmt.Fprintf(&b, "joined w=%d", r.Worker)
		if r.Refused {
			fmt.Fprintf(&b, " REFUSED")
		}
		if r.Join == JoinSuperseded {
			fmt.Fprintf(&b, " superseded")
		}
		fmt.Fprintf(&b, " generation=%d epoch=%d step=%d again=%d", r.Generation, r.Epoch, r.Step, r.Units)
	case ReplyAck:
		fmt.Fprintf(&b, "ack %s prefix=%d %s", tok(r.Token), r.Prefix, [...]string{"durable", "STALE", "INVALID"}[r.Code])
	case ReplyRound:
		fmt.Fprintf(&b, "round w=%d through=%d last=%v close=%d", r.Worker, r.Round.Through, r.Round.Last, r.Round.Close)
		if r.Round.Virtual > 0 {
			fmt.Fprintf(&b, " virtual=%d", r.Round.Virtual)
		}
		if len(r.Round.Rows) > 0 {
			fmt.Fprintf(&b, " rows=%d", r.Round.Rows)
		}
		if r.Round.Over != "" {
			fmt.Fprintf(&b, " OVER: %s", r.Round.Over)
		}
	case ReplySteal:
		fmt.Fprintf(&b, "steal? %s at=%d", tok(r.Token), r.At)
	case ReplyRevoke:
		fmt.Fprintf(&b, "revoke %s", tok(r.Token))
	case ReplyEnd:
		fmt.Fprintf(&b, "end w=%d", r.Worker)
	case ReplyFence:
		fmt.Fprintf(&b, "fence w=%d", r.Worker)
	case ReplyGrant:
		fmt.Fprintf(&b, "grant #%d w=%d %s ds=%d part=%d pass=%d seg=%d [%d, %d) tries=%d", r.Request, r.Worker, tok(r.Token), r.Dataset, r.Partition, r.Pass, r.Segment, r.Start, r.End, r.Tries)
		if r.Suspicion != NoSuspicion {
			fmt.Fprintf(&b, " suspicion=%d", r.Suspicion)
		}
		if ps := pieces[r.PieceLo:r.PieceHi]; len(ps) != 1 || ps[0].OrderStart != ps[0].Start || ps[0].Segment != r.Segment {
			for _, p := range ps {
				fmt.Fprintf(&b, "\n       %d: seg=%d [%d, %d)", p.OrderStart, p.Segment, p.Start, p.End)
			}
		}
	case ReplyStanding:
		fmt.Fprintf(&b, "standing #%d w=%d ds=%d %s", r.Request, r.Worker, r.Dataset, [...]string{"wait", "drained", "END", "paused", "FAILED", "recovering", "deleted", "RESTORE"}[r.State])
	case ReplyClose:
		fmt.Fprintf(&b, "close")
	case ReplyPause:
		fmt.Fprintf(&b, "pause w=%d cut=%d %v", r.Worker, r.Cut.Cut, map[bool]string{false: "on", true: "off"}[r.Refused])
	case ReplyCut:
		fmt.Fprintf(&b, "cut #%d w=%d %s cut=%d step=%d epoch=%d", r.Request, r.Worker, [...]string{"ok", "REFUSED", "FENCED", "TRY", "TIMEOUT", "AGAIN"}[r.Cut.Code], r.Cut.Cut, r.Step, r.Epoch)
		if r.Units != 0 {
			fmt.Fprintf(&b, " again=%d", r.Units)
		}
		if r.Cut.Path != "" {
			fmt.Fprintf(&b, " path=%s", r.Cut.Path)
		}
		if r.Cut.Body != nil {
			b.WriteString(textOf(r.Cut.Body))
		}
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, ": %s", r.Reason)
	}
	return b.String()
}

func textOf(c *cut.Cut) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n       of rank %d of %d at step %d, exact %v", c.Rank, c.WorldSize, c.Step, c.Exact)
	for _, d := range c.Datasets {
		for _, p := range d.Partitions {
			fmt.Fprintf(&b, "\n       %s %d %s:", d.Name, p.Number, p.Identity)
			if p.Done > 0 {
				fmt.Fprintf(&b, " %d passes, %d units;", p.Done, p.DoneUnits.Acked)
			}
			for _, s := range p.Segments {
				fmt.Fprintf(&b, " %d:%d-%d", s.ID, s.Start, s.End)
				if !s.Sealed {
					b.WriteString("~")
				}
			}
			if p.Complete {
				b.WriteString(" complete")
			}
			for _, q := range p.Passes {
				fmt.Fprintf(&b, "; pass %d below %d:%d", q.Pass, q.Low.Segment, q.Low.Offset)
				for _, r := range q.Ranges {
					fmt.Fprintf(&b, ", %d:%d-%d:%d", r.Start.Segment, r.Start.Offset, r.End.Segment, r.End.Offset)
					if r.Kind != cut.Acked {
						fmt.Fprintf(&b, " %s", r.Kind)
					}
				}
				fmt.Fprintf(&b, ", %d units", q.Units.Acked)
			}
		}
	}
	return b.String()
}

var reportNames = map[ReportKind]string{
	ReportReclaimed: "reclaimed", ReportStealAsked: "steal_asked", ReportStolen: "stolen", ReportStealRefused: "steal_refused",
	ReportAckRefused: "ack_refused", ReportDatasetDone: "dataset_done", ReportPassDone: "pass_done", ReportDatasetFailed: "dataset_failed",
	ReportDiverged: "diverged", ReportNeedSegments: "need_segments", ReportGeneration: "generation", ReportGenerationEnded: "generation_ended",
	ReportPendingAgain: "pending_again", ReportStalled: "stalled", ReportExpired: "expired", ReportGivenUp: "given_up", ReportRecovered: "recovered",
	ReportHeldRefused: "held_refused", ReportRejected: "rejected", ReportFenced: "fenced", ReportExcluded: "excluded", ReportReadmitted: "readmitted", ReportRoundsDropped: "rounds_dropped",
	ReportCutFrozen: "cut_frozen", ReportCutBound: "cut_bound", ReportCutMemory: "cut_memory", ReportCutVoided: "cut_voided", ReportCutDropped: "cut_dropped", ReportResolveCut: "resolve_cut",
	ReportRestored: "restored", ReportRewound: "rewound", ReportRestoreMissing: "restore_missing", ReportPauseEnded: "pause_ended",
	ReportRestoreWaits: "restore_waits",
}

func (r Report) text() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, " * %s", reportNames[r.Kind])
	for _, f := range []struct {
		name string
		n    int64
	}{{"ds", int64(r.Dataset)}, {"part", int64(r.Partition)}, {"pass", int64(r.Pass)}, {"rank", int64(r.Rank)}, {"seg", r.Segment}, {"units", r.Units}} {
		if f.n != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.n)
		}
	}
	if r.End != 0 {
		fmt.Fprintf(&b, " [%d, %d)", r.Start, r.End)
	}
	if r.Cut != 0 || r.Step != 0 {
		fmt.Fprintf(&b, " cut=%d step=%d", r.Cut, r.Step)
	}
	if r.Path != "" {
		fmt.Fprintf(&b, " path=%s", r.Path)
	}
	if r.Agent != "" {
		fmt.Fprintf(&b, " agent=%s", r.Agent)
	}
	if why := r.Why(); why != "" {
		fmt.Fprintf(&b, " (%s)", why)
	}
	if r.Over {
		b.WriteString(" over")
	}
	return b.String()
}
