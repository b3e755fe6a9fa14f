package report

// Counts says how many records of a log had which fate; doc.go defines them.
type Counts struct {
	Records     int `json:"records"`
	Once        int `json:"applied_once"`
	Twice       int `json:"applied_twice"` // or more often
	Never       int `json:"never"`
	Redelivered int `json:"redelivered"` // how often records were given to a trainer's loop, after the first time
	Repeats     int `json:"repeats"`     // how often records were applied, after the first time; applications in doubt count
	InDoubt     int `json:"in_doubt"`    // rows in a batch that was begun and not finished
	Foreign     int `json:"foreign"`     // rows that are no record of the log, or not as written

	// Why records were applied twice. The two add up to Twice.
	TwiceUnstepped   int `json:"twice_unstepped"`   // in a killed trainer's last batch, which it had not stepped
	TwiceUnexplained int `json:"twice_unexplained"` // must be 0
}

// tally counts what happened to one record.
type tally struct {
	yielded, sure, doubt uint8
	first, second        int64 // when the first application began, and the second
	excused              int64 // from this time on another may follow the first; 0: never
}

func count(records int, journals []*Journal, kills []Kill) Counts {
	c := Counts{Records: records}
	tallies := make([]tally, records)
	for _, j := range journals {
		c.Foreign += j.Foreign
		ended := j.endedBy(kills)
		for i, b := range j.Batches {
			excused := int64(0)
			if i == len(j.Batches)-1 && b.Stepped == 0 {
				excused = ended
			}
			if b.doubtful() {
				c.InDoubt += len(b.Records)
			}
			for _, n := range b.Records {
				if n >= 0 {
					tallies[n].add(b, excused)
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
			if t.sure+t.doubt == 2 && t.excused != 0 && t.second >= t.excused {
				c.TwiceUnstepped++
			} else {
				c.TwiceUnexplained++
			}
		}
	}
	return c
}

// add counts a batch that has the record. Only the end of the first application's process can explain a
// second one. The end of the second one could only explain a third, and a record that was applied three
// times is never explained.
func (t *tally) add(b Batch, excused int64) {
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
	if t.first == 0 || b.Begun < t.first {
		t.first, t.second, t.excused = b.Begun, t.first, excused
	} else {
		t.second = b.Begun
	}
}

// doubtful reports whether the batch was begun and not finished.
func (b Batch) doubtful() bool { return b.Begun != 0 && b.Applied == 0 }

// endedBy gives the time from which on another trainer may get the last batch of a killed process. 0: it
// was not killed. A batch whose step() has returned never comes again: the step is stored on the node,
// and the next agent finds it.
//
// A SIGKILL was sent at Kill.At. The end of a process that ended by itself was noticed later, so the last
// entry of its journal counts.
func (j *Journal) endedBy(kills []Kill) int64 {
	for _, k := range kills {
		if k.PID == j.About.PID && k.What == StoppedTrainer {
			return max(j.Last, 1)
		}
		if k.PID == j.About.PID {
			return max(j.Last, k.At)
		}
	}
	return 0
}
