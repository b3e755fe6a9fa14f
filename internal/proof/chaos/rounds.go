package chaos

import (
	"slices"
	"time"
)

// Rounds: if one rank gets a round, all ranks get it. A rank yields a round only when every rank's
// process has the round's batch, so the ranks that live yield it too. If a member dies, that start of
// the group ends. Its last round is one that all ranks have yielded, or one that only some ranks have
// yielded; then the others have ended before they could.

// roundPrompt is how long a rank may take to yield a round that another rank has yielded, while all
// processes run.
const roundPrompt = 30 * time.Second

// judgeRounds compares the ranks in each start of the group.
func (v *Verdict) judgeRounds(lives []*life, disturbed []disturbance) {
	groups := map[int][]*life{}
	last := 0
	for _, l := range lives {
		groups[l.group] = append(groups[l.group], l)
		last = max(last, l.group)
	}
	for g := range last + 1 {
		v.judgeGroupsRounds(groups[g], disturbed)
	}
}

func (v *Verdict) judgeGroupsRounds(members []*life, disturbed []disturbance) {
	death := int64(0) // time of the first death
	frozen := false
	rounds := map[*life]map[int]int{} // how many rounds each has yielded, by stream
	for _, l := range members {
		rounds[l] = l.rounds()
		frozen = frozen || l.frozen
		if !l.done && l.ended != 0 && (death == 0 || l.ended < death) {
			death = l.ended
		}
	}
	for _, l := range members {
		for _, b := range l.batches {
			for _, o := range members {
				if n := rounds[o][b.stream]; n < b.number {
					v.judgeMissed(l, o, b, n, death, frozen, disturbed)
				}
			}
		}
	}
}

// judgeMissed judges a case where l has yielded b, and o has only n rounds of that stream.
func (v *Verdict) judgeMissed(l, o *life, b *batch, n int, death int64, frozen bool, disturbed []disturbance) {
	switch {
	case death == 0 || o.done:
		v.say("rounds: %v has yielded round %d of stream %d, and %v, which ended well, only %d", l, b.number, b.stream, o, n)
	case !o.joined:
		v.say("rounds: %v has yielded round %d of stream %d, and %v was never there", l, b.number, b.stream, o)
	case b.number > n+1:
		v.say("rounds: %v has yielded round %d of stream %d, and %v only %d", l, b.number, b.stream, o, n)
	case death-b.yielded > int64(roundPrompt) && !frozen && !anyDuring(disturbed, b.yielded, death, l.agent) && !anyDuring(disturbed, b.yielded, death, o.agent):
		v.say("rounds: %v has yielded round %d of stream %d, and %v had not %v later, when the first of the group ended", l, b.number, b.stream, o, time.Duration(death-b.yielded))
	}
}

// rounds is how many rounds l has yielded, by stream.
func (l *life) rounds() map[int]int {
	n := map[int]int{}
	for _, b := range l.batches {
		n[b.stream] = max(n[b.stream], b.number)
	}
	return n
}

// backAtWork is how long a process may need after its start until it works.
const backAtWork = 3 * time.Second

// anyDuring reports whether the master or an agent was not running between two times, or had only just
// started.
func anyDuring(disturbed []disturbance, from, to int64, agent int) bool {
	return slices.ContainsFunc(disturbed, func(d disturbance) bool {
		return (d.agent < 0 || d.agent == agent) && d.from < to && from < d.to+int64(backAtWork)
	})
}
