package chaos

import (
	"github.com/headrace/headrace/shardsvc/cut"
)

// sinceRestored lists the lives of the shared model's server, each with the checkpoint that it was given.
func (c *crew) sinceRestored(lives []*life, found map[cut.ID]kept, v *Verdict) (spans []span) {
	for n := 1; n <= c.lifeOf; n++ {
		s := span{server: n, over: n < c.lifeOf}
		last := restored{server: -1}
		for _, l := range lives {
			for _, r := range l.restored {
				if r.server == n && (last.server < 0 || r.at > last.at) {
					last = r
				}
			}
		}
		if last.server > 0 && last.cut != 0 {
			k, ok := found[last.cut]
			if !ok {
				v.say("life %d of the server began with cut %v, and no checkpoint has that cut", n, last.cut)
				continue
			}
			in, _, err := members(k.cut, c.inputs)
			if err != nil {
				continue // checkAll reports it
			}
			s.base, s.cut = k.models[0].seen, in
		}
		spans = append(spans, s)
	}
	return spans
}

// checkExact: an exact checkpoint of a shared model holds its cut. Beyond that it may hold only records
// that trainers had in hand which were killed before the save: applied, and not known to be durable.
// The checkpoint with which its model began may have brought such records too.
func (c *crew) checkExact(lives []*life, found map[cut.ID]kept, v *Verdict, s *Saves) {
	spans := map[int]span{}
	for _, x := range c.sinceRestored(lives, found, v) {
		spans[x.server] = x
	}
	for _, l := range lives {
		for _, one := range l.saved {
			k, ok := found[one.cut]
			if !ok || !k.cut.Exact {
				continue
			}
			in, _, err := members(k.cut, c.inputs)
			if err != nil {
				continue // checkAll reports it
			}
			s.InHand += v.judgeExactModel(k.models[0], in, c.inputs, spans[one.server], inHand(lives, one))
		}
	}
}

// inHand counts records that were applied before the model was copied, by trainers that were killed by
// then and did not know that the step was durable.
func inHand(lives []*life, at saved) map[key]int {
	all := map[key]int{}
	for _, l := range lives {
		if l.done || l.ended == 0 || l.ended > at.captured && !l.frozen {
			continue
		}
		for _, b := range l.batches {
			if b.server != at.server || b.applied == 0 || b.applied > at.captured || b.durableWhenLastStepped {
				continue
			}
			for _, k := range b.keys {
				all[k]++
			}
		}
	}
	return all
}

// judgeExactModel compares a model with its cut, and gives how many records it holds beyond the cut.
func (v *Verdict) judgeExactModel(m model, in map[key]bool, inputs []*input, from span, inHand map[key]int) (more int) {
	i, twice := -1, 0
	var example key
	each(inputs, func(k key) {
		i++
		beyond := int(m.seen[i])
		if in[k] {
			beyond--
		}
		if beyond <= 0 {
			return // compare reports a record that is missing
		}
		may := inHand[k]
		if from.base != nil {
			may += int(from.base[i])
			if from.cut[k] {
				may--
			}
		}
		if more += beyond; beyond > may {
			twice += beyond - may
			example = k
		}
	})
	if twice > 0 {
		v.Twice += twice
		v.say("an exact checkpoint holds %d records beyond its cut that no killed trainer had in hand, the last one is %v", twice, example)
	}
	return more
}
