package report

import "slices"

// life is the time in which a trainer process could work: from its request for a first batch to its death
// or the end of data.
type life struct {
	from, to int64
	rate     float64
}

// makespan is the time from the first trainer's first request to the last record's application, and its
// ratio to the ideal. In the ideal, the trainers that live at each moment work at the rate of their
// pace and never wait.
func makespan(records int, journals []*Journal, killed map[int]int64) (seconds, ratio float64) {
	var lives []life
	start, end := int64(0), int64(0)
	for _, j := range journals {
		for _, b := range j.Batches {
			end = max(end, b.Applied)
		}
		if j.Ready == 0 {
			continue
		}
		if start == 0 || j.Ready < start {
			start = j.Ready
		}
		l := life{j.Ready, j.Last, j.About.Rate}
		if at, dead := killed[j.About.PID]; dead {
			l.to = at
		}
		lives = append(lives, l)
	}
	if start == 0 || end <= start {
		return 0, 0
	}
	ideal := idealEnd(records, start, lives) - float64(start)
	return float64(end-start) / 1e9, float64(end-start) / ideal
}

// idealEnd is the end in that ideal. It goes from one start or death of a trainer to the next.
func idealEnd(records int, at int64, lives []life) float64 {
	var changes []int64
	for _, l := range lives {
		changes = append(changes, l.from, l.to)
	}
	slices.Sort(changes)
	left := float64(records)
	rate := 0.0
	for _, next := range append(changes, changes[len(changes)-1]+1) {
		if next <= at {
			continue
		}
		now := 0.0
		for _, l := range lives {
			if l.from <= at && at < l.to {
				now += l.rate
			}
		}
		if now > 0 {
			rate = now
		}
		step := float64(next-at) / 1e9 * now
		if step >= left {
			break
		}
		left -= step
		at = next
	}
	return float64(at) + left/max(rate, 1e-9)*1e9
}
