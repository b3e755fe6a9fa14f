package chaos

// Full rounds only (tail="drop"): records that are in no full round at the end of an input are
// dropped. Dropped records are settled and in no model. The cut of the last round's step lists
// them. So at the end the model must hold everything except what the last cut lists as dropped.
//
// If a group begins with less than one round left, it trains nothing, and perhaps saves nothing.
// Then no cut lists what it drops, and the broker may never hear that those records are done.

// mostRounds bounds how many rounds of records an input may drop. About one round is left at the
// end, and one rank may be a full batch ahead of another: files are spread by bytes, and leases
// are small here.
const mostRounds = 3

// judgeDropped checks the records that the model lacks at the end: the master has dropped some, and
// there are no more than a few rounds of them. It removes from want the records that no cut has to
// list.
func (v *Verdict) judgeDropped(inputs []*input, last map[int]*life, end model, want map[key]bool) {
	left := make([][]key, len(inputs))
	i := -1
	each(inputs, func(k key) {
		if i++; end.seen[i] == 0 {
			left[k.dataset()] = append(left[k.dataset()], k)
		}
	})
	for d, in := range inputs {
		stream, round, trained := d+1, 0, true // each rank has one stream of each input
		for _, l := range last {
			round += l.rows[d]
			trained = trained && l.rounds()[stream] > 0
		}
		n := len(left[d])
		v.Dropped += n
		switch {
		case n > mostRounds*round:
			v.say("drop: %d records of %s are in no model at the end, and a round of all ranks has %d", n, in.name, round)
		case n > 0 && in.dropped == 0:
			v.say("drop: %d records of %s are in no model at the end, and the master has dropped none", n, in.name)
		case !trained:
			for _, k := range left[d] {
				delete(want, k)
			}
		}
	}
}
