package demo

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

// step is one step of a plan: what to kill when this share of the records is applied.
type step struct {
	share float64
	kill  func(*killer, context.Context) error
}

var (
	filePlan = []step{
		{0.20, killTrainer(1)},
		{0.45, (*killer).killAgent},
		{0.70, (*killer).killMaster},
	}
	// The consumer groups lose the same trainers at the same moments, and the broker. They have no agents and
	// no master.
	topicPlan = []step{
		{0.12, killTrainer(1)},
		{0.27, killTrainer(2)},
		{0.42, (*killer).killAgent},
		{0.60, (*killer).killMaster},
		{0.75, (*killer).killBroker},
	}
)

const (
	victimAgent  = 1                       // holds trainers 2 and 3
	trainerPause = 2500 * time.Millisecond // long enough for other trainers to ask for its rows
	restartPause = 300 * time.Millisecond
	patience     = 6 * time.Second // how long to wait for a release: a session's TTL and more
)

// killer carries out the plan and records the kills.
type killer struct {
	team   *team
	tell   *story
	books  *ledger
	plan   []step
	topic  *topic   // nil: files are read
	groups []*group // none: no groups to compare with
	kills  []report.Kill
	ends   []report.Kill // trainers that gave up by themselves
}

// maxGaveUp is how often each trainer is started again after it gave up. If a machine stands still for
// longer than a session lives (a laptop that sleeps, a frozen container), trainers rightly give up.
const maxGaveUp = 3

// startAgain starts the next process of a trainer that gave up. The old one counts as killed: batches in
// its hands may come again.
func (k *killer) startAgain(rank int) error {
	p := k.team.trainers[rank]
	k.team.gaveUp[rank]++
	k.tell.say("%s ended by itself, as it must: %s", p.Name, p.gaveUp())
	end := report.Kill{What: report.StoppedTrainer, Name: p.Name, PID: p.Pid(), At: child.Monotonic()}
	if err := k.team.startTrainer(rank); err != nil {
		return err
	}
	end.Back = child.Monotonic()
	k.tell.say("%s is started again, as a new process", p.Name)
	k.ends = append(k.ends, end)
	return k.write()
}

// next kills what is due at this share of the records. It returns when the successor works, so kills do
// not overlap.
func (k *killer) next(ctx context.Context, share float64) error {
	if done := len(k.kills); done < len(k.plan) && share >= k.plan[done].share {
		return k.plan[done].kill(k, ctx)
	}
	return nil
}

func killTrainer(rank int) func(*killer, context.Context) error {
	return func(k *killer, ctx context.Context) error { return k.killTrainer(ctx, rank) }
}

func (k *killer) killTrainer(ctx context.Context, rank int) error {
	p := k.team.trainers[rank]
	held, err := k.heldBy(ctx, func(l lease) bool { return l.rank == uint32(rank) })
	if err != nil {
		return err
	}
	at, err := p.Kill()
	if err != nil {
		return err
	}
	kill := report.Kill{What: "trainer", Name: p.Name, PID: p.Pid(), At: at}
	k.tell.say("SIGKILL to %s (process %d, paced to %.0f rows/s), which held %d leases", p.Name, p.Pid(), k.team.rates[rank], len(held))
	membersAgain, err := k.killMembers(rank)
	if err != nil {
		return err
	}
	released := k.watchRelease(ctx, held, func(l lease) bool { return isOneOf(l, held) })
	restart := time.NewTimer(trainerPause)
	defer restart.Stop()
	for released != nil || kill.Back == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case kill.Released = <-released:
			released = nil
			k.sayReleased(kill)
		case <-restart.C:
			if err := k.team.startTrainer(rank); err != nil {
				return err
			}
			kill.Back = child.Monotonic()
			k.tell.say("%s is started again %s after the kill, as a new process", p.Name, ms(kill.Back-at))
			if err := membersAgain(); err != nil {
				return err
			}
		}
	}
	// The plan may kill its agent next. A program that starts then waits only 5 s for the agent.
	if err := k.team.trainerReads(ctx, k.books, rank); err != nil {
		return err
	}
	return k.note(kill)
}

func (k *killer) sayReleased(kill report.Kill) {
	if kill.Released == 0 {
		k.tell.say("no row of %s had to go to another", kill.Name)
		return
	}
	k.tell.say("its rows go to another: first grant %s after the kill", ms(kill.Released-kill.At))
}

func (k *killer) killAgent(ctx context.Context) error {
	p := k.team.agents[victimAgent]
	mine := func(l lease) bool { return l.agent == agentName(victimAgent) }
	held, err := k.heldBy(ctx, mine)
	if err != nil {
		return err
	}
	at, err := p.Kill()
	if err != nil {
		return err
	}
	kill := report.Kill{What: "agent", Name: p.Name, PID: p.Pid(), At: at}
	k.tell.say("SIGKILL to %s (process %d), which held %d leases for trainers 2 and 3", p.Name, p.Pid(), len(held))
	// Wait for a release only until the agent is back: later its rows may be stolen, which is no release.
	watching, stop := context.WithCancel(ctx)
	defer stop()
	released := k.watchRelease(watching, held, mine)
	if err := pause(ctx, restartPause); err != nil {
		return err
	}
	if err := k.team.startAgent(victimAgent); err != nil {
		return err
	}
	kill.Back = child.Monotonic()
	k.tell.say("%s is started again %s after the kill, on the same socket", p.Name, ms(kill.Back-at))
	if err := k.team.agentAnswers(ctx, k.books, victimAgent, k.team.agents[victimAgent]); err != nil {
		return err
	}
	live := child.Monotonic()
	stop()
	if kill.Released = <-released; kill.Released != 0 {
		k.sayReleased(kill)
	} else {
		k.tell.say("its living trainers have found it, %s after the kill: no row had to go to another", ms(live-at))
	}
	return k.note(kill)
}

func (k *killer) killMaster(ctx context.Context) error {
	p := k.team.master
	held, err := k.heldBy(ctx, func(lease) bool { return true })
	if err != nil {
		return err
	}
	at, err := p.Kill()
	if err != nil {
		return err
	}
	kill := report.Kill{What: "master", Name: p.Name, PID: p.Pid(), At: at}
	k.tell.say("SIGKILL to the master (process %d), which knew of %d leases; the trainers go on with what they have", p.Pid(), len(held))
	if err := pause(ctx, restartPause); err != nil {
		return err
	}
	if err := k.team.startMaster(); err != nil {
		return err
	}
	kill.Back = child.Monotonic()
	k.tell.say("the master is started again %s after the kill, on the same state folder", ms(kill.Back-at))
	if err := answer(ctx, k.team.master, k.books.waitForMaster); err != nil {
		return err
	}
	// Look for a grant, not a re-assertion: a lease of records that nobody held before the kill.
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	kill.Released = k.books.firstGrant(waiting, func(l lease) bool { return !overlapsAny(l, held) })
	if kill.Released != 0 {
		k.tell.say("holders re-asserted their leases; first grant %s after the kill", ms(kill.Released-at))
	} else {
		k.tell.say("no grant was needed after it")
	}
	return k.note(kill)
}

// heldBy gives the leases now that match.
func (k *killer) heldBy(ctx context.Context, by func(lease) bool) ([]lease, error) {
	all, err := k.books.leases(ctx)
	var held []lease
	for _, l := range all {
		if by(l) {
			held = append(held, l)
		}
	}
	return held, err
}

// watchRelease sends the time at which a record of held was first seen in a lease of another holder, or 0
// if that does not happen in time. It asks the master every 10 ms.
func (k *killer) watchRelease(ctx context.Context, held []lease, holder func(lease) bool) <-chan int64 {
	released := make(chan int64, 1)
	go func() { // ends with ctx, or after patience
		ctx, stop := context.WithTimeout(ctx, patience)
		defer stop()
		if len(held) == 0 {
			released <- 0
			return
		}
		released <- k.books.firstGrant(ctx, func(l lease) bool {
			return overlapsAny(l, held) && !holder(l)
		})
	}()
	return released
}

// isOneOf reports whether l is one of held. The master may still show it as held by a dead process.
func isOneOf(l lease, held []lease) bool {
	return slices.ContainsFunc(held, func(h lease) bool { return h.token == l.token })
}

func overlapsAny(l lease, held []lease) bool {
	return slices.ContainsFunc(held, l.overlaps)
}

// note adds a kill to the file beside the journals, which the report reads.
func (k *killer) note(kill report.Kill) error {
	k.kills = append(k.kills, kill)
	return k.write()
}

func (k *killer) write() error {
	return writeKills(k.team.journals, slices.Concat(k.kills, k.ends))
}

func writeKills(dir string, kills []report.Kill) error {
	text, err := json.MarshalIndent(kills, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, report.KillsName), text, 0o600)
}

func ms(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }
