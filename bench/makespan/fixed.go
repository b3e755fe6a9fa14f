package main

// playFixed is the alternative, as DLRover's master does it: shards of a fixed number of records are pulled
// from one queue. A shard counts when all of it is done, so a dead worker's shard is done again from its
// start. The comparison favours it: a pull costs only the wire, and a death is noticed at once.
func playFixed(s scenario, shard int64) outcome {
	c := newClock(s.seed)
	f := &fixed{clock: c, s: s, size: shard, left: s.records}
	for w := range s.rates {
		c.at(s.startAt[w], func() { f.pull(w, 0) })
	}
	c.at(s.dies, func() { f.kill(s.victim) })
	c.at(s.back, func() { f.pull(s.victim, 1) })
	f.lives = make([]int, len(s.rates))
	f.doing = make([]int64, len(s.rates))
	c.run(func() bool { return f.done == s.records })
	return outcome{ratio: s.ratio(f.end), grants: f.grants, repeated: f.repeated}
}

type fixed struct {
	*clock
	s        scenario
	size     int64
	left     int64   // records that were never handed out
	returned []int64 // sizes of shards to do again
	idle     []int
	doing    []int64 // by worker: size of its shard
	lives    []int
	done     int64
	end      int64
	grants   int
	repeated int64
	progress [64]int64 // by worker: finished records of its shard
}

// pull gives worker w the next shard. life is the process of w that asks.
func (f *fixed) pull(w, life int) {
	f.lives[w] = life
	size := min(f.size, f.left)
	if n := len(f.returned); n > 0 {
		size = f.returned[n-1]
		f.returned = f.returned[:n-1]
	} else {
		f.left -= size
	}
	if size == 0 {
		f.idle = append(f.idle, w)
		return
	}
	f.grants++
	f.doing[w], f.progress[w] = size, 0
	f.after(2*oneWay, func() {
		if f.lives[w] == life {
			f.batch(w, life)
		}
	})
}

func (f *fixed) batch(w, life int) {
	n := min(f.s.rows, f.doing[w]-f.progress[w])
	f.after(f.s.batchTime(f.rand, w, n), func() {
		if f.lives[w] != life {
			return
		}
		if f.progress[w] += n; f.progress[w] < f.doing[w] {
			f.batch(w, life)
			return
		}
		f.done += f.doing[w]
		f.end = f.now
		f.doing[w] = 0
		f.pull(w, life)
	})
}

func (f *fixed) kill(w int) {
	f.lives[w] = -1
	if f.doing[w] == 0 {
		return
	}
	f.repeated += f.progress[w]
	f.returned = append(f.returned, f.doing[w])
	f.doing[w] = 0
	if n := len(f.idle); n > 0 {
		next := f.idle[n-1]
		f.idle = f.idle[:n-1]
		f.pull(next, f.lives[next])
	}
}
