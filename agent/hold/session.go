package hold

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// margin is how much earlier than the master we give up a session. We need this time to end
// processes.
func margin(ttl time.Duration) time.Duration { return max(ttl/10, 20*time.Millisecond) }

// connected sends Hello. It names this agent, its workers and the leases that they hold.
func (c *Core) connected() {
	c.up, c.greeted, c.whole = true, false, false
	clear(c.requests)
	clear(c.reports)
	c.reports = c.reports[:0]
	m := c.message()
	m.Hello = proto.Clone(c.cfg.Hello).(*pb.Hello)
	c.asserted = nil
	c.unsendCalls()
	c.roundsAgain()
	clear(c.paused)
	c.paused = c.paused[:0]
	for _, w := range c.workers {
		w.pauseStale, w.pausedDue = w.pause != 0, false
		// Before the first session the model may be shared: nobody has said its kind.
		if w.state == gone && c.replaced(w) && c.model != "" && c.model != "shared" && !w.ended {
			c.dropAll(w, gone)
		}
		// Hello names a worker that has left until the master has processed its acks and its
		// Leave, because a new master waits for each process that it knew. It does not name
		// one that was never let in: that one would replace a process that came later.
		claims := w.state == gone && c.leaving(w) && (w.answered && !c.replaced(w) || w.wasLetIn())
		for _, s := range w.streams {
			s.requests = s.requests[:0]
			for _, l := range s.leases {
				if l.dead {
					continue
				}
				claims = true
				l.sent = 0
				c.asserted = append(c.asserted, l)
				m.Held = append(m.Held, &pb.Held{
					Token: l.token.proto(), Worker: w.join.Worker, Dataset: s.dataset, Partition: l.partition, Pass: l.pass,
					Segment: l.segment, LeaseStart: l.durable, LeaseEnd: l.end, Frontier: l.frontier,
				})
			}
		}
		// A worker that was not let in yet is named after Hello is answered. The master
		// computes when it was made from the speed of our messages, and Hello may have
		// waited long.
		first := w.state == joining && w.join.Generation == 0 && !claims
		if w.said = !first && (w.state != gone || claims); w.said {
			m.Joins = append(m.Joins, w.joinNow())
		}
	}
}

// replaced says whether this agent has another process of w's rank. In `shared`, w's steps
// are in the model all the same, so they are still acked. In the other kinds w's model is gone.
func (c *Core) replaced(w *worker) bool {
	return slices.ContainsFunc(c.workers, func(o *worker) bool { return o.join.Rank == w.join.Rank && o.state != gone })
}

// leaving says whether w's Leave must be sent again.
func (c *Core) leaving(w *worker) bool {
	return slices.ContainsFunc(c.unsure, func(u unsure) bool { return u.leave == w.leave })
}

func (c *Core) disconnected() {
	c.up, c.greeted, c.whole = false, false, false
	c.out = nil
}

// received applies one message of the master, field by field in wire order.
func (c *Core) received(m *pb.MasterMessage) {
	if !c.up {
		return
	}
	if m.Hello != nil {
		// A worker that was not let in is told why. Its leases are refused as a consequence.
		for _, r := range m.Joins {
			if r.Refused {
				c.joinReply(r)
			}
		}
		c.onHello(m.Hello)
	}
	c.echoed(m.Echo)
	for _, r := range m.Joins {
		if m.Hello == nil || !r.Refused {
			c.joinReply(r)
		}
	}
	for _, r := range m.Acks {
		c.ackResult(r)
	}
	for _, a := range m.StealAsks {
		c.steal(a)
	}
	for _, r := range m.Revokes {
		if l := c.byToken[tokenOf(r.Token)]; l != nil {
			c.drop(l)
		}
	}
	for _, e := range m.Ends {
		if w := c.byNumber[e.Worker]; w != nil {
			c.end(w, e.Reason)
		}
	}
	for _, f := range m.Fences {
		if w := c.byNumber[f.Worker]; w != nil {
			c.fence(w, f.Reason)
		}
	}
	for _, g := range m.Grants {
		c.grant(g)
	}
	for i := range c.fx.Grants { // after all other fields, because a grant may answer a request that they changed
		if s := c.stream(c.fx.Grants[i].Stream); s != nil {
			c.fx.Grants[i].Standing = s.standing
		}
	}
	for _, st := range m.Standings {
		c.onStanding(st)
	}
	for _, r := range m.CutReplies {
		c.cutReply(r)
	}
	for _, h := range m.PauseYields {
		c.pauseYields(h)
	}
	for _, d := range m.Rounds {
		c.round(d)
	}
	c.dropStale()
}

// onHello takes the answers about leases and sends unanswered messages again. An answer without a
// protocol continues the one before it: it has answers about more leases.
func (c *Core) onHello(h *pb.HelloReply) {
	more := h.Protocol == 0 && c.greeted
	if !more {
		c.greeted = true
		c.job, c.model, c.ttl = h.Job, h.Model, time.Duration(h.SessionTtlMs)*time.Millisecond
	}
	if !more {
		c.giveUpUnstepped()
	}
	n := min(len(h.Held), len(c.asserted))
	asserted := c.asserted[:n]
	c.asserted = c.asserted[n:]
	for i, l := range asserted {
		if !l.dead {
			c.reasserted(l, h.Held[i])
		}
		c.shorterSince(l, h.Held[i])
	}
	if !more {
		for _, w := range c.workers {
			if w.reported = 0; !w.said && w.state != gone { // it joined while Hello was under way
				c.sayJoin(w)
			}
		}
		c.sayAgain()
		c.fx.Greeted = true
	}
	if len(c.asserted) == 0 && !c.whole {
		c.wholeHello()
	}
}

// wholeHello runs when each lease was answered. From now on acks are sent. The order is
// acks, then the step that they belong to, then calls about that step. None of them may be
// sent before the acks of leases whose answer had not come yet.
func (c *Core) wholeHello() {
	c.whole = true
	for _, w := range c.workers {
		if w.state == gone {
			continue
		}
		if w.lastStep > 0 {
			c.report(w)
		}
		c.callSoon(w)
	}
}

// reasserted applies the master's answer about one lease.
func (c *Core) reasserted(l *lease, r *pb.HeldReply) {
	if r.Refused {
		c.refuse(l, r.Reason)
		return
	}
	if tokenOf(r.Token) != l.token {
		c.refuse(l, "the master gave the lease another token, as older versions do: start a master of this agent's version")
		return
	}
	l.resume = false
	l.s.rounds.named(l.token)
	if r.LeaseEnd < l.frontier && c.model == "shared" && l.s.w.state == gone {
		l.clip(r.LeaseEnd) // the worker has left, so nobody is fenced, and what it stepped is in the model
	}
	if r.LeaseEnd < l.frontier {
		// The rows that were delivered may now be given to others as well.
		c.refuse(l, "the master has given rows that were already delivered to others")
		return
	}
	c.shrink(l, r.LeaseEnd)
	c.durableTo(l, r.Prefix)
	if !l.dead && len(l.acks) > 0 {
		c.markDirty(l)
		c.ackDue = c.now
	}
}

// giveUpUnstepped is for trainers of a shared model that left before we knew the model's
// kind. Others may have the rows that they had not stepped, because the agent before us has
// told the master that they ended. The rows that they had stepped are in the model.
func (c *Core) giveUpUnstepped() {
	if c.model != "shared" {
		return
	}
	for _, w := range slices.Clone(c.workers) {
		c.giveBackAll(w)
	}
}

// clip forgets that anything at or beyond end was delivered. Example: lease [100, 200) is
// delivered to 160; after clip(150) it is delivered to 150.
func (l *lease) clip(end int64) {
	l.frontier, l.stepped = min(l.frontier, end), min(l.stepped, end)
	n := 0
	for n < len(l.acks) && l.acks[n].from < end {
		n++
	}
	l.acks = l.acks[:n]
	l.sent, l.said = min(l.sent, n), min(l.said, n)
	if n > 0 && l.acks[n-1].prefix > end { // its tally includes records beyond end
		l.acks[n-1] = ack{from: l.acks[n-1].from, prefix: end, step: l.acks[n-1].step}
	}
}

// shorterSince handles a lease that became shorter while Hello was under way: it gives up
// everything from the lease's present end on.
func (c *Core) shorterSince(l *lease, r *pb.HeldReply) {
	if r.Refused || l.end >= r.LeaseEnd || !l.dead && slices.ContainsFunc(c.unsure, func(u unsure) bool { return u.lease == l }) {
		return // the failure that is sent gives it up
	}
	m := c.message()
	m.Releases = append(m.Releases, &pb.Release{Token: r.Token, Prefix: max(l.end, r.Prefix), Reason: "given up while the session began"})
}

// sayAgain repeats leaves and failures that the last session may have lost.
func (c *Core) sayAgain() {
	for i := range c.unsure {
		u := &c.unsure[i]
		u.at = c.now
		m := c.message()
		switch {
		case u.leave != nil:
			m.Leaves = append(m.Leaves, u.leave)
		case u.lease.dead:
		default:
			again := proto.Clone(u.fail).(*pb.ReadFailure)
			again.Token = u.lease.token.proto()
			m.Failures = append(m.Failures, again)
		}
	}
}

// echoed notes that the master has processed what we sent at the time echo. The session is
// good for one TTL from that time.
func (c *Core) echoed(echo Time) {
	if echo <= 0 || echo > c.now {
		return
	}
	if until := echo + Time(c.ttl-margin(c.ttl)); until > c.trustUntil {
		c.trustUntil = until
	}
	if c.expired && c.trusted() {
		c.expired = false
	}
	if c.talking() && c.trusted() {
		c.fx.Live = true
	}
	kept := c.unsure[:0]
	for _, u := range c.unsure {
		if u.leave != nil && u.at <= echo {
			c.giveBackAll(c.byNumber[u.leave.Worker])
		}
		if u.at > echo || u.leave != nil && c.owed(u.leave.Worker) {
			kept = append(kept, u)
		} else if u.leave != nil {
			c.forget(u.leave.Worker)
		}
	}
	clear(c.unsure[len(kept):])
	c.unsure = kept
}

// owed says whether acks of a worker that has left are not answered yet. A new master is then
// told of the worker again, and after that of its end.
func (c *Core) owed(number uint32) bool {
	w := c.byNumber[number]
	return w != nil && c.claims(w)
}

func (c *Core) trusted() bool { return c.now < c.trustUntil }

// distrust draws the consequences once when trust ends.
func (c *Core) distrust() {
	if c.trusted() || c.expired || c.trustUntil == 0 {
		return
	}
	c.expired = true
	if c.model != "shared" {
		return
	}
	for _, w := range c.workers {
		if w.state == joined && c.inHand(w) {
			c.end(w, "the master was not heard for "+c.ttl.String()+", and the rows it has in hand will go to others")
		}
	}
}

// ping tells a trainer how long the session is good. If this agent then stands still, a
// trainer of a shared model relies on the last ping that it got. So a trainer is told that the
// session is over only when it has no rows in hand. After that it gets no rows until it is told
// of the next session. A trainer that is being ended is told nothing more.
func (c *Core) ping(ev *Ping) {
	c.distrust()
	c.fx.Session = c.SessionLeft(c.now)
	w := c.byNumber[ev.Worker]
	if w == nil {
		return
	}
	over := c.fx.Session == 0 && c.model == "shared"
	c.fx.Mute = w.state == ending
	c.fx.Live = w.doubts && !over
	w.doubts = over
}

// inHand says whether the worker has rows that were delivered and are not stepped.
func (c *Core) inHand(w *worker) bool {
	for _, s := range w.streams {
		for _, l := range s.leases {
			if l.frontier > l.stepped {
				return true
			}
		}
	}
	return false
}

func tokenOf(t *pb.Token) Token {
	return Token{Epoch: t.GetEpoch(), Term: t.GetTerm(), Sequence: t.GetSequence()}
}

func (t Token) proto() *pb.Token {
	return &pb.Token{Epoch: t.Epoch, Term: t.Term, Sequence: t.Sequence}
}
