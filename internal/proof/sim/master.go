package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
	"github.com/headrace/headrace/sources"
)

// master is the shell around shardsvc.Core: one loop, one committer, two buffers, as in shardsvc/serve. The
// events that the loop takes while one batch is synced form the next batch. Nothing of a batch leaves
// before it is durable.
type master struct {
	process
	core     *shardsvc.Core
	decoder  wire.Decoder
	encoder  wire.Encoder
	born     Time
	disk     *disk
	sessions map[shardsvc.Session]*link
	newest   shardsvc.Session
	speaks   map[shardsvc.Session][]*trainer // the trainers that each session's agent has named
	lags     map[shardsvc.Session]Time       // by session: how long its Hello was on its way and waited here
	spoken   map[*trainer]Time               // when an agent that had named the trainer was last heard

	cur, spare *batch
	syncing    *batch   // the batch that the committer has
	durable    bool     // that batch will be durable even if the master is killed meanwhile
	inbox      []func() // events that wait while the buffer is full

	wake, ticks Time // when the core wants to be woken; the tick that is planned
	blocked     Time
	proved      Time                               // when the newest durable batch was handed over
	full        Time                               // since when the buffer is full
	behind      bool                               // it was stopped, and its inbox is not empty yet
	lenient     bool                               // the current event may be refused
	rewound     bool                               // the current event was a rewind, and was carried out
	needs       bool                               // it needs segments
	young       map[shardsvc.PartitionNo]cut.Place // by partition: the first place that is not too old
	out         []bool                             // records that it has reported as excluded
	listing     bool
	logs        map[*inputLog]*memsource.Source             // opened by its listings
	told        map[sources.PartitionID][2]sources.Position // the last retain and commit marks
	lists       Time                                        // when its discovery has first seen the source
}

type batch struct {
	fx     shardsvc.Effects
	events int
	echoes []echo
	calls  []func() // of tools
	handed Time
}

type echo struct {
	s  shardsvc.Session
	at int64
}

// startMaster starts a master process on the disk, unless another living master has it.
func (w *World) startMaster() {
	m := &master{disk: w.disk, born: w.now, cur: &batch{}, spare: &batch{}, sessions: map[shardsvc.Session]*link{}, speaks: map[shardsvc.Session][]*trainer{}, lags: map[shardsvc.Session]Time{}, spoken: map[*trainer]Time{}, young: map[shardsvc.PartitionNo]cut.Place{}, logs: map[*inputLog]*memsource.Source{}, told: map[sources.PartitionID][2]sources.Position{}, wake: never, ticks: never}
	m.begin(w, fmt.Sprintf("master%d", w.masters))
	w.masters++
	if w.disk.locked(m) {
		w.tracef(m.name, "refused by the door: %s has the folder", w.disk.owner.name)
		return
	}
	w.disk.owner = m
	w.master = m
	m.woken, m.caught = m.continued, m.caughtUp
	m.ended = append(m.ended, func() {
		if m.syncing != nil && m.durable && m.disk.mine(m) {
			w.tracef(m.name, "its last batch, %d puts, is durable", len(m.syncing.fx.Puts))
			m.disk.apply(m.syncing.fx.Puts)
			w.books.exclude(m.syncing.fx.Reports)
			w.servedGoesBack(m.syncing.fx.Reports)
		}
		w.masterDown()
	})
	m.out = make([]bool, w.records)
	for r, at := range w.books.out {
		m.out[r] = at > 0
	}
	m.decoder = wire.Decoder{Job: jobName, Model: w.plan.model, Now: func() int64 { return 1 }}
	m.encoder = wire.Encoder{Job: jobName, Model: w.plan.model, TTL: uint32(w.plan.ttl / millisecond)}
	m.core = shardsvc.New(shardsvc.Config{Job: jobName, Model: w.plan.model, SessionTTL: shardsvc.Time(w.plan.ttl), LostAfter: shardsvc.Time(w.plan.lostAfter), History: w.plan.history, Ahead: 1})
	if err := w.disk.load(m.core); err != nil {
		w.fail("a master cannot load what the last one stored: %v", err)
		return
	}
	w.tracef(m.name, "starts, %d stored keys", len(w.disk.data))
	if len(w.disk.data) == 0 && w.oneIn(4) {
		m.lists = w.now + w.time(0, 3*second)
	}
	m.step(&shardsvc.Start{})
	m.poll()
}

// now is the core's clock. It begins with the process.
func (m *master) now() shardsvc.Time { return shardsvc.Second + shardsvc.Time(m.w.now-m.born) }

// isFull reports whether too much waits for the committer.
func (m *master) isFull() bool { return m.cur.events+len(m.cur.fx.Replies) >= m.w.plan.maxPending }

// take gives the loop an event, or puts it into the inbox.
func (m *master) take(do func()) {
	if m.isFull() || len(m.inbox) > 0 {
		if m.full == 0 {
			m.full = m.w.now
		}
		m.inbox = append(m.inbox, do)
		return
	}
	do()
	m.turn()
}

// turn ends one round of the loop.
func (m *master) turn() {
	if m.alive {
		if !m.behind {
			m.tick()
		}
		m.handOver()
		m.arm()
	}
}

func (m *master) drain() {
	for len(m.inbox) > 0 && !m.isFull() && m.alive {
		do := m.inbox[0]
		m.inbox = m.inbox[1:]
		do()
		m.handOver()
	}
	if len(m.inbox) == 0 && m.full != 0 {
		m.blocked += m.w.now - m.full
		m.full = 0
	}
}

func (m *master) tick() {
	if len(m.inbox) == 0 && !m.isFull() && m.coreTime() >= m.wake {
		b := m.blocked
		m.blocked = 0
		m.step(&shardsvc.Tick{Blocked: shardsvc.Time(b)})
	}
}

func (m *master) coreTime() Time { return Time(m.now()) }

// continued: it was stopped since then, and no session may expire because of that.
func (m *master) continued(since Time) {
	m.behind = true
	slept := Time(shardsvc.Second) + since - m.born
	if late := m.coreTime() - max(m.wake, slept); m.wake != never && late > 5*millisecond && m.full == 0 {
		m.blocked += late
	}
}

// caughtUp: its inbox is empty, so the core may get its Tick.
func (m *master) caughtUp() {
	m.behind = false
	m.turn()
}

func (m *master) arm() {
	if m.wake >= m.ticks || m.isFull() || len(m.inbox) > 0 {
		return // when it is full, the committer's answer comes first
	}
	at := m.wake
	m.ticks = at
	m.after(max(0, at-m.coreTime()), func() {
		if m.ticks == at {
			m.ticks = never
			m.turn()
		}
	})
}

func (m *master) step(ev shardsvc.Event) {
	w := m.w
	w.events++
	fx := &m.cur.fx
	told, replied, epoch, fenced := len(fx.Reports), len(fx.Replies), m.core.Job().Epoch, false
	m.wake = Time(m.core.Step(m.now(), ev, fx))
	if m.wake == Time(shardsvc.Never) {
		m.wake = never
	}
	m.cur.events++
	if err := m.core.CheckInvariants(); err != nil {
		w.fail("after %T: %v", ev, err)
	}
	for i := told; i < len(fx.Reports); i++ {
		r := &fx.Reports[i]
		if w.tracing {
			w.tracef(m.name, "* %s", reportText(r))
		}
		switch r.Kind {
		case shardsvc.ReportGeneration, shardsvc.ReportGenerationEnded, shardsvc.ReportRestored, shardsvc.ReportRewound:
			fenced = true
		}
		switch r.Kind {
		case shardsvc.ReportResolveCut:
			m.settle(r.Cut, r.Path)
		case shardsvc.ReportRejected, shardsvc.ReportDiverged:
			if m.lenient {
				break
			}
			w.fail("the core reports %s: %s", reportNames[r.Kind], r.Reason)
		case shardsvc.ReportExcluded:
			m.excludes(r)
		case shardsvc.ReportReadmitted:
			w.eachIn(r.Label, r.Pass, r.Segment, r.Start, r.End, func(_ *segment, rec int32, _ int64) { m.out[rec] = false })
		case shardsvc.ReportRoundsDropped:
			m.checkDropped(r)
		case shardsvc.ReportCutFrozen:
			w.frozenOut[r.Cut] = slices.Clone(m.out)
		case shardsvc.ReportDatasetFailed:
			if d, _ := m.core.Dataset(r.Dataset); r.Lost && d.Options.GoOnAfterLoss {
				w.fail("%s should have gone on after a loss: %s", r.Name, r.Reason)
			}
		case shardsvc.ReportPendingAgain:
			w.giveUp(r.Rank)
		case shardsvc.ReportRewound:
			m.rewound = true
		case shardsvc.ReportNeedSegments:
			m.needs = true
		case shardsvc.ReportStolen:
			w.seen.steals++
		case shardsvc.ReportExpired:
			w.seen.expired++
		case shardsvc.ReportGivenUp:
			w.books.givenUp(m, r.Rank, r.Incarnation)
		}
	}
	m.granted(fx.Replies[replied:])
	if now := m.core.Job().Epoch; now != epoch && !fenced {
		w.fail("after %T the epoch is %d, it was %d, without a rewind or a new generation", ev, now, epoch)
	}
	if m.needs && !m.listing {
		m.listing = true
		m.after(w.time(millisecond, 50*millisecond), func() {
			m.listing = false
			m.take(m.discover)
		})
	}
}

// handOver gives the batch to the committer, if the committer is idle.
func (m *master) handOver() {
	w := m.w
	if m.syncing != nil || m.cur.events == 0 || !m.alive {
		return
	}
	b := m.cur
	m.core.Flush(&b.fx)
	if b.handed = w.now; len(b.fx.Puts) == 0 && len(b.fx.Replies)+len(b.echoes) > 0 && w.now > m.proved+w.plan.ttl/25 {
		m.core.Prove(&b.fx)
	}
	if w.tracing {
		for _, p := range b.fx.Puts {
			w.tracef(m.name, "put %s", putText(p))
		}
	}
	m.cur, m.spare = m.spare, nil
	m.syncing, m.durable = b, w.oneIn(2)
	m.after(w.commitTime(), func() { m.committed(b) })
}

func (m *master) committed(b *batch) {
	w := m.w
	if len(b.fx.Puts) > 0 && w.failing && w.oneIn(20) {
		w.crashes++
		m.kill("a commit failed")
		return
	}
	switch {
	case m.disk.mine(m):
		m.disk.apply(b.fx.Puts)
		if len(b.fx.Puts) > 0 {
			m.proved = b.handed
		}
		w.books.exclude(b.fx.Reports)
		w.servedGoesBack(b.fx.Reports)
	case len(b.fx.Puts) > 0:
		w.crashes++
		m.kill("another master has its disk")
		return
	}
	m.syncing = nil
	m.answer(b)
	b.fx.Reset()
	b.echoes, b.calls, b.events = b.echoes[:0], nil, 0
	m.spare = b
	m.handOver()
	m.drain()
	m.turn()
}

func (m *master) answer(b *batch) {
	var boxes []*outbox
	box := func(s shardsvc.Session) *outbox {
		l := m.sessions[s]
		if l == nil {
			return nil
		}
		for _, o := range boxes {
			if o.l == l {
				return o
			}
		}
		o := &outbox{l: l}
		boxes = append(boxes, o)
		return o
	}
	for i := range b.fx.Replies {
		r := &b.fx.Replies[i]
		if m.w.tracing {
			m.w.tracef(m.name, "%s", replyText(r, b.fx.Pieces))
		}
		if o := box(r.To); o != nil {
			o.add(m, r, b.fx.Pieces)
		}
	}
	for _, e := range b.echoes {
		if o := box(e.s); o != nil {
			o.echo = e.at
		}
	}
	for _, answer := range b.calls {
		answer()
	}
	for _, o := range boxes {
		for _, msg := range o.batch.Messages(o.echo) {
			o.l.send(1, msg)
		}
		if o.close != "" {
			o.l.send(1, turnedAway(o.close))
			o.l.hangUp(1)
		}
	}
}

// turnedAway ends a stream with a status.
type turnedAway string

// accept takes a stream that an agent has opened.
func (m *master) accept(l *link) {
	var s shardsvc.Session
	opened := m.w.now
	l.ends[1].take = func(msg any) {
		b := msg.([]byte)
		m.take(func() {
			if s == 0 {
				m.newest++
				s = m.newest
				m.sessions[s] = l
				m.lags[s] = m.w.now - opened // an agent sends Hello at once; here it may have waited too
			}
			if m.w.tracing {
				m.w.tracef(m.name, "from session %d: %s", s, messageText(b))
			}
			in := m.fromAgent(s, b)
			m.hears(s, &in.Event)
			m.step(&in.Event)
			if at := int64(in.Event.SentAt); at != 0 && m.core.HasSession(s) {
				m.echo(s, at)
			}
		})
	}
	l.ends[1].broken = func() {
		m.take(func() {
			if s != 0 {
				delete(m.sessions, s)
				delete(m.speaks, s)
				m.w.tracef(m.name, "session %d broke", s)
				m.step(&shardsvc.Lost{Session: s})
			}
		})
	}
}

// hears notes which trainers the agent of a session names, and how long its Hello was on its way. A session
// that has expired does not count any more, even though its agent learns that only when the batch is
// durable.
func (m *master) hears(s shardsvc.Session, in *shardsvc.Message) {
	if in.Hello == nil && !m.core.HasSession(s) {
		return
	}
	for i := range in.Joins {
		t := m.w.everybody[in.Joins[i].Incarnation-1]
		t.lag = max(t.lag, m.lags[s])
		m.speaks[s] = append(m.speaks[s], t)
	}
	for _, t := range m.speaks[s] {
		m.spoken[t] = m.w.now
	}
}

// silence is how long no agent has reported a process to m, as far as m can know.
func (m *master) silence(t *trainer) Time {
	if at, ok := m.spoken[t]; ok {
		return m.w.now - at
	}
	return m.w.now - m.born
}

func (m *master) echo(s shardsvc.Session, at int64) {
	for i := range m.cur.echoes {
		if m.cur.echoes[i].s == s {
			m.cur.echoes[i].at = at
			return
		}
	}
	m.cur.echoes = append(m.cur.echoes, echo{s, at})
}
