package shardsvc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A shared model must not go back while others train it. The master may not know whether
// others train. Example: a whole job dies. Its processes count as training until their agent
// reports their end, or until they are given up. So for a while the master hears of none of
// them, and some may still run. Meanwhile a restore is answered CutAgain, and a process that
// joined with resume=start waits before it begins.

// doubtfulFor bounds the doubt. An agent that stays silent is given up after LostAfter. If it
// speaks just before that, only to report that it has lost a process, that process is given
// up a TTL later.
func (ck *checkpoints) doubtfulFor() Time { return ck.cfg.LostAfter + ck.cfg.SessionTTL }

// doubt names the processes that may still train the model beside w, if none of them is heard
// of. Empty: there is no such process, or one is heard of. waited is how long w has waited.
// Example: rank 1 was heard last 3 s ago, and w calls for the first time: rank 1.
func (ck *checkpoints) doubt(w *worker, waited Time) string {
	all := ck.training()
	if !ck.inDoubt(w, waited, &all) {
		return ""
	}
	return all.without(w)
}

// training are the processes that train the model, or are dead and nobody knows it yet.
type training struct {
	all       []*worker
	reachable []*worker // those that an agent speaks for
}

func (ck *checkpoints) training() (t training) {
	for _, x := range ck.group.processes() {
		if !ck.trains(x) {
			continue
		}
		t.all = append(t.all, x)
		if x.session() != 0 {
			t.reachable = append(t.reachable, x)
		}
	}
	return t
}

// inDoubt says whether processes may still train the model beside w, although nobody is heard
// of. It runs for each process that waits, so it looks only at those that can be heard of.
func (ck *checkpoints) inDoubt(w *worker, waited Time, t *training) bool {
	waited = min(waited, ck.now-ck.recoveredAt)
	if waited >= ck.doubtfulFor() {
		return false
	}
	for _, x := range t.reachable {
		if x != w && ck.group.heardOf(x, w, ck.now-waited) {
			return false
		}
	}
	return len(t.all) > 1 || len(t.all) == 1 && t.all[0] != w
}

// without names the processes but w, some of them if there are many.
func (t *training) without(w *worker) string {
	others := slices.DeleteFunc(slices.Clone(t.all), func(x *worker) bool { return x == w })
	slices.SortFunc(others, func(a, b *worker) int {
		return cmp.Or(cmp.Compare(a.rank.no, b.rank.no), cmp.Compare(a.agentName(), b.agentName()))
	})
	var names []string
	for i, x := range others {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(others)-maxNamed))
			break
		}
		names = append(names, fmt.Sprintf("rank %d (agent %q)", x.rank.no, x.agentName()))
	}
	return strings.Join(names, ", ")
}

// undecided says why it is too early to decide a restore; empty: it is not. waited is how
// long w has waited for it.
func (ck *checkpoints) undecided(w *worker, waited Time) string {
	if ck.model.byStep {
		return ""
	}
	silent := ck.doubt(w, waited)
	if silent == "" {
		return ""
	}
	if waited == 0 {
		ck.reportDoubt(w, silent)
	}
	return fmt.Sprintf("it is not known yet whether others still train this shared model: %s. A process that died with the job counts as one of them until it is given up, after %d s at most (lost_after and the session's TTL together)",
		silent, (ck.doubtfulFor()+Second-1)/Second)
}

func (ck *checkpoints) reportDoubt(w *worker, silent string) {
	ck.ledger.report(Report{Kind: ReportRestoreWaits, Rank: w.rank.no, Agent: w.agentName(), Reason: "whether they still train the model is not known yet: " + silent})
}

// starter is a process that joined with resume=start and has begun nothing yet.
type starter struct {
	w     *worker
	since Time // when it was first unknown whether others train; 0: it was not yet
}

func (ck *checkpoints) starts(w *worker) bool {
	return slices.ContainsFunc(ck.starters, func(s starter) bool { return s.w == w })
}

// checkStarters lets those starters begin that need not wait any more. It runs at the end of
// each Step, because the Step may have shown that a process is gone, or that it lives.
func (ck *checkpoints) checkStarters() {
	if ck.recovering || len(ck.starters) == 0 {
		return
	}
	all := ck.training()
	for i := 0; i < len(ck.starters); {
		if w := ck.starters[i].w; w.gone() || ck.past(w.rank).way != mustGoBack || w.session() != 0 && ck.begins(&ck.starters[i], &all) {
			ck.starters = slices.Delete(ck.starters, i, i+1)
		} else {
			i++
		}
	}
}

// begins lets a starter begin. It returns false if it is not known whether others train the
// model (doubt). If others do train it, the starter joins them.
func (ck *checkpoints) begins(s *starter, all *training) bool {
	waited := Time(0)
	if s.since > 0 {
		waited = ck.now - s.since
	}
	if ck.inDoubt(s.w, waited, all) {
		if s.since == 0 {
			ck.reportDoubt(s.w, all.without(s.w))
			s.since = max(ck.now, 1)
			ck.timers.push(timer{at: s.since + ck.doubtfulFor(), kind: timerDoubt})
		}
		return false
	}
	past, r := ck.past(s.w.rank), s.w.rank
	past.way = noWay
	if !ck.othersTrain(s.w) && r.lastStep() <= ck.restored {
		ck.choose(r, &target{})
		past.way = wentBack
	}
	ck.ledger.dirtyRank(r.account)
	ck.checkRestored()
	return true
}
