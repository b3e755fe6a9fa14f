package report

import "time"

// Counts is what became of the records of a log; see the package's text.
type Counts struct {
	Records     int `json:"records"`
	Once        int `json:"applied_once"`
	Twice       int `json:"applied_twice"` // or more often
	Never       int `json:"never"`
	Redelivered int `json:"redelivered"` // yields to a trainer's loop beyond a record's first
	Repeats     int `json:"repeats"`     // applications beyond a record's first, in doubt included
	InDoubt     int `json:"in_doubt"`    // rows in a batch that was begun and not finished
	Foreign     int `json:"foreign"`     // rows that are no record of the log, or not as written

	// Why records were applied twice; they add up to Twice.
	TwiceUnstepped   int `json:"twice_unstepped"`   // a killed trainer's yielded batch that it had not stepped
	TwiceInFlight    int `json:"twice_in_flight"`   // a killed trainer's batch, stepped less than InFlight before the kill
	TwiceUnexplained int `json:"twice_unexplained"` // must be 0
}

// InFlight is how long a step may be on its way from trainer to master: the
// client sends it from a background thread, the master answers after fsync.
const InFlight = 500 * time.Millisecond

// tally is how often a record was applied.
type tally struct {
	yielded, sure, doubt uint8
	first                int64  // when it was applied first
	reason               reason // why it may be applied again after that
}

type reason uint8

const (
	undecided reason = iota // it was not applied
	none
	inFlight
	unstepped
)

func count(records int, journals []*Journal, killed map[int]int64) Counts {
	c := Counts{Records: records}
	tallies := make([]tally, records)
	for _, j := range journals {
		c.Foreign += j.Foreign
		for _, b := range j.Batches {
			why := excuse(j, b, killed)
			if b.doubtful() {
				c.InDoubt += len(b.Records)
			}
			for _, n := range b.Records {
				if n >= 0 {
					tallies[n].add(b, why)
				}
			}
		}
	}
	for _, t := range tallies {
		c.Redelivered += max(0, int(t.yielded)-1)
		c.Repeats += max(0, int(t.sure)+int(t.doubt)-1)
		switch {
		case t.sure == 0:
			c.Never++
		case t.sure+t.doubt == 1:
			c.Once++
		default:
			c.Twice++
			switch {
			case t.sure+t.doubt > 2 || t.reason == none:
				c.TwiceUnexplained++
			case t.reason == unstepped:
				c.TwiceUnstepped++
			case t.reason == inFlight:
				c.TwiceInFlight++
			}
		}
	}
	return c
}

func (t *tally) add(b Batch, why reason) {
	if t.yielded == 255 {
		return
	}
	t.yielded++
	switch {
	case b.Applied != 0:
		t.sure++
	case b.doubtful():
		t.doubt++
	default:
		return
	}
	// Of two applications the first one must explain the second. How the second one ended
	// explains nothing: it would only allow a third, and three are never explained.
	if t.reason == undecided || b.Begun < t.first {
		t.first, t.reason = b.Begun, why
	}
}

// doubtful: begun and not finished.
func (b Batch) doubtful() bool { return b.Begun != 0 && b.Applied == 0 }

// excuse says whether the records of b may come again: only a process that was
// killed leaves batches behind whose step nobody heard of.
func excuse(j *Journal, b Batch, killed map[int]int64) reason {
	at, dead := killed[j.About.PID]
	switch {
	case !dead:
		return none
	case b.Stepped == 0:
		return unstepped
	case at-b.Stepped < int64(InFlight):
		return inFlight
	}
	return none
}
