package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// Stealing costs time, so a scan is made at most once per period, and for at most
// maxThieves waiting processes.
const (
	scanPeriod  = 20 * Millisecond
	scanIdle    = 100 * Millisecond // nothing was worth it
	maxThieves  = 32
	backoffBase = 100 * Millisecond
	backoffMax  = 6 // doublings
)

// victim is a worker with something to steal.
type victim struct {
	w       *holder
	l       *lease // its newest lease that may be asked for
	in      input  // of that lease, or of its newest one
	backlog int64  // units it holds in that input
	rate    float64
	slow    bool
	behind  bool // on a live input: it has more records below head than it can read in the time of one lease
}

// finish is how long the victim needs for all it holds.
func (v *victim) finish() float64 { return float64(v.backlog) / v.rate }

// scan asks holders for tails of their leases, so that they and the waiting processes
// finish together. On a live input it asks only holders that are slow, that fall behind, or
// that lead in more partitions than the process that waits.
func (lg *ledger) scan(d *dataset) {
	d.nextScan = lg.now + scanPeriod
	if lg.leveling(d) {
		lg.watchSteal(d, d.levelUntil)
		return
	}
	whole := lg.standing(d, nil)
	if d.waiting.Len() == 0 || d.leases == 0 || d.opt.Strict || !whole.why.grants() {
		return
	}
	mean := [inputs]float64{1, 1}
	for in, n := range d.rated {
		if n > 0 {
			mean[in] = max(float64(d.sumRate[in])/float64(n), 1)
		}
	}
	lg.thieves = lg.thieves[:0]
	rounds := lg.above.inRounds(d.id)
	lg.findVictims(d, mean, rounds)
	asked := false
	for _, r := range d.waiting.All() {
		if len(lg.thieves) >= maxThieves {
			break
		}
		if !slices.Contains(lg.thieves, r.w) {
			lg.thieves = append(lg.thieves, r.w)
			asked = lg.stealFor(d, r.w, mean, whole.why == allOut, rounds) || lg.shareLeads(d, r.w) || asked
		}
	}
	if !asked {
		d.nextScan = lg.now + scanIdle
	}
	lg.watchSteal(d, d.nextScan)
}

func (lg *ledger) findVictims(d *dataset, mean [inputs]float64, rounds bool) {
	lg.victims = lg.victims[:0]
	for _, w := range lg.holders {
		v := victim{w: w}
		if !rounds {
			v.in = lg.askedIn(d, w)
		}
		for l := w.leases; l != nil; l = l.wnext { // newest first
			if l.pass.p.ds != d || l.pass.p.in != v.in && !rounds {
				continue
			}
			there := max(0, l.reach()-max(l.prefix, l.frontier))
			if l.asked {
				lg.thieves = append(lg.thieves, l.thief) // its answer is awaited
				there -= max(0, l.reach()-max(l.askAt, l.prefix, l.frontier))
			}
			v.backlog += there
			if rounds { // counted as leveling does it, or the two would move the same rows back and forth
				v.backlog += max(0, l.reach()-l.prefix) - max(0, l.reach()-max(l.prefix, l.frontier))
			}
			if v.l == nil && there > 0 && !l.asked && lg.now >= l.stealAfter && w.mayAsk() {
				v.l = l
			}
		}
		if v.backlog > 0 {
			v.rate, v.slow = lg.pace(d, w, v.in, mean[v.in], rounds)
			v.behind = v.l != nil && v.l.leads() && v.finish() > float64(d.opt.Target)/float64(Second)
			lg.victims = append(lg.victims, v)
		}
	}
}

// askedIn returns the input of w's newest lease that could be asked for a part.
func (lg *ledger) askedIn(d *dataset, w *holder) (in input) {
	if !d.opt.hasBackfill() {
		return fromSource
	}
	for l := w.leases; l != nil; l = l.wnext {
		if l.pass.p.ds != d {
			continue
		}
		if in = l.pass.p.in; !l.asked && l.reach() > max(l.prefix, l.frontier) {
			break
		}
	}
	return in
}

// pace is the rate to expect of a holder. A paused or silent holder is slow. With rounds all go
// at one pace, and one that is silent waits for the others: if each of two ranks took the other
// one for slow, the same rows would go from one to the other for ever.
func (lg *ledger) pace(d *dataset, w *holder, in input, mean float64, rounds bool) (rate float64, slow bool) {
	rate = mean
	if r := w.rate(d.id, in); r > 0 && !rounds {
		rate = float64(r)
	}
	if w.paused {
		return rate / 1000, true
	}
	if quiet := lg.now - w.since; quiet > 4*d.opt.Target && !rounds {
		return rate * float64(d.opt.Target) / float64(quiet), true
	}
	return rate, false
}

// stealFor asks the holder that would finish last for so many units that it and w finish
// together, if that is worth a round trip. Example: the holder has 900 units left, w has
// none, and both read 100 units/s: it asks for 450.
func (lg *ledger) stealFor(d *dataset, w *holder, mean [inputs]float64, drained, rounds bool) bool {
	own := victim{}
	best := -1
	for i := range lg.victims {
		v := &lg.victims[i]
		switch {
		case v.w == w:
			own = *v
		case v.l == nil || !drained && !v.slow && !v.behind:
		case best < 0 || v.finish() > lg.victims[best].finish():
			best = i
		}
	}
	if best < 0 || w.paused {
		return false
	}
	v := &lg.victims[best]
	busy := 0.0 // seconds that w has work for, if that is in other units
	if own.in != v.in && own.backlog > 0 {
		busy, own.rate = own.finish(), 0
	}
	if own.rate == 0 {
		own.rate = mean[v.in]
	}
	if r := w.rate(d.id, v.in); r > 0 && !rounds {
		own.rate = float64(r)
	}
	if busy > 0 {
		own.backlog = int64(busy * own.rate)
	}
	units := int64((float64(v.backlog)*own.rate - float64(own.backlog)*v.rate) / (v.rate + own.rate))
	units = min(units, v.l.reach()-max(v.l.prefix, v.l.frontier))
	gain := float64(units) / v.rate
	if _, least, _ := d.opt.sizes(v.in); units < max(least/4, 1) || gain < float64(d.opt.Target)/float64(Second)/20 {
		return false
	}
	lg.askFor(v.l, w, v.l.reach()-units)
	v.backlog -= units
	v.l = nil // one ask per holder and scan
	return true
}

func (lg *ledger) askFor(l *lease, thief *holder, at int64) {
	l.asked, l.askAt, l.thief = true, at, thief
	ps := l.pass
	lg.reply(Reply{To: l.w.session(), Kind: ReplySteal, Token: l.token, At: at - l.shift})
	lg.report(Report{Kind: ReportStealAsked, Dataset: ps.p.ds.id, Partition: ps.p.no, Pass: ps.n, Rank: l.w.account.no,
		Segment: l.segment, Start: at - l.shift, End: max(at, l.reach()) - l.shift, Token: l.token, Agent: l.w.speaker.name})
}

// stealAnswer takes the answer of a holder: it keeps what it has delivered and gives up
// the rest. Example: lease [100, 200), asked at 160, delivered to 180: the holder keeps
// [100, 180), and [180, 200) is pending.
func (lg *ledger) stealAnswer(a *speaker, k *StealAnswer) {
	l := lg.owned(a, k.Token)
	if l == nil {
		return
	}
	// An answer that gives up a tail counts whatever was asked, because the holder has let
	// go of the tail. Two questions may be out: one of them tells the end of a lead.
	ps := l.pass
	at := l.line(k.At)
	if refused := k.Refused || at < l.prefix || at >= l.end; refused && !l.asked {
		return
	}
	l.asked = false
	if !k.Refused && at > l.askAt && at < l.end { // it has delivered so far
		lg.growTo(ps.p, line.Place{Segment: l.segment, Offset: at - l.shift})
	}
	report := Report{Kind: ReportStealRefused, Dataset: ps.p.ds.id, Partition: ps.p.no, Pass: ps.n, Rank: l.w.account.no,
		Segment: l.segment, Start: k.At, End: l.reach() - l.shift, Token: l.token, Agent: a.name}
	if k.Refused || at < l.prefix || at >= l.end {
		if ps.p.holder != nil {
			lg.kick(ps.p.ds) // nothing after it was granted meanwhile
		}
		l.stealAfter = lg.now + backoffBase<<min(l.refusals, backoffMax)
		l.refusals++
		lg.report(report)
		return
	}
	lg.stats.Steals++
	report.Kind, report.Units = ReportStolen, ps.Units(at, max(at, l.reach()))
	lg.report(report)
	lg.giveBack(l, at, untouched)
}

func (lg *ledger) scanDue(d *dataset, at Time) {
	if d.scanAt == at && d.state != removed {
		d.scanAt = 0
		lg.leveled(d)
		lg.scan(d)
	}
}

// watchSteal asks for a scan of d at a time. If that time has come already, the next Tick
// makes the scan, and that Tick comes at once.
func (lg *ledger) watchSteal(d *dataset, at Time) {
	if d.scanAt != 0 && d.scanAt <= at {
		return
	}
	d.scanAt = max(at, 1)
	lg.timers.push(timer{at: d.scanAt, kind: timerSteal, of: d})
}
