package chaos

// Full rounds only (tail="drop"): what no full round has at the end of an input is dropped. It
// is settled, in no model, and listed in the cut of the last round's step. So the end is
// everything but what the last cut lists as dropped.
//
// A group that began with less than one round left trains nothing, and perhaps saves nothing:
// what it drops is then in no cut. For the same reason no broker must be told of it.

// mostRounds bounds what may be dropped of an input, in rounds: about one is left, and one rank
// may be a full batch ahead of another. Files are spread by bytes, and leases are small here.
const mostRounds = 3

// judgeDropped: of what the model at the end lacks, the master has dropped some, and there is
// no more of it than a few rounds have. It takes from want what no cut needs to list.
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
