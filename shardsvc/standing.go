package shardsvc

import "fmt"

// standing says whether a request may be granted rows now and, if not, why. It is the one
// place where that is decided: grants, steals, parking, what a waiting trainer is told and
// what status shows all follow it. Which rows a request gets, and whether there are any for
// it, is decided when a range is carved: a partition waits until it is known which of its
// records are too old (old.go), a backfill may come first (backfill.go), and while a round is
// leveled, a rank gets no more than its part (level.go).
type standing struct {
	why    why
	reason string // for people
}

// why a request has no rows yet.
type why uint8

const (
	noRows  why = iota // nothing is there to read: it is granted rows as soon as they come
	allOut             // every record is leased or settled: it is granted those that come back
	granted            // bounds the two that are granted rows

	allSettled    // the data has ended
	datasetFailed // until somebody resumes the dataset
	datasetPaused // likewise
	newTerm       // a new master waits for workers that may hold leases
	groupEnded    // its generation has ended
	noVirtualRank // the dataset is bit_exact, and it names none of its virtual ranks

	ofProcess     // bounds the reasons that hold for all datasets: a request with one of those is parked
	mustRestore   // its process, or another one of its group, restores first
	joinedInPause // its process joined while yields are paused for a save
)

// grants says whether a request that stands so is granted what there is.
func (y why) grants() bool { return y < granted }

// parks says whether a request that stands so waits outside of its dataset's queue.
func (y why) parks() bool { return y > ofProcess }

// state is what the request is told.
func (y why) state() State {
	switch y {
	case allOut:
		return Drained
	case allSettled:
		return End
	case datasetFailed, noVirtualRank:
		return Failed
	case datasetPaused:
		return Paused
	case newTerm:
		return Recovering
	case mustRestore:
		return Restoring
	}
	return Wait
}

// standing returns how a request for rows of d stands. With nil it returns how a request of
// any process would stand.
func (lg *ledger) standing(d *dataset, r *request) standing {
	if r == nil {
		return lg.standingAt(d, d.unsettled == 0, d.undrained == 0)
	}
	if s := lg.above.standingOf(r.w); s.why.parks() {
		return s
	}
	n := d.opt.VirtualRanks
	if n == 0 {
		return lg.standingAt(d, d.unsettled == 0, d.undrained == 0)
	}
	// The end of a virtual rank is not the dataset's.
	if r.virtual == 0 || r.virtual > n {
		return standing{noVirtualRank, fmt.Sprintf("dataset %s is bit_exact: a stream reads one of its %d virtual ranks, and says which", d.name, n)}
	}
	p := d.virtualRank(r.virtual)
	return lg.standingAt(d, p != nil && p.left.settled(), p != nil && p.left.drained())
}

// standingAt returns how a request stands that its process does not keep back, when what it
// reads is settled or drained.
func (lg *ledger) standingAt(d *dataset, settled, drained bool) standing {
	switch {
	case d.state == failed:
		return standing{datasetFailed, d.reason}
	case d.partsAll && settled:
		return standing{why: allSettled}
	case d.state == paused:
		return standing{datasetPaused, "the dataset is paused"}
	case lg.recovering:
		return standing{newTerm, "a new master waits for its agents"}
	case lg.genEnded:
		return standing{why: groupEnded}
	case d.partsAll && drained:
		return standing{why: allOut}
	}
	return standing{}
}
