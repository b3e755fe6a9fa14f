package hold

import (
	"fmt"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Tally counts records: how many, and the event times of the oldest and the newest
// in ms since 1970, 0 and 0 where none has one.
type Tally struct{ Rows, Oldest, Newest int64 }

// Add counts the records of o too.
func (t *Tally) Add(o Tally) {
	t.Rows += o.Rows
	t.Seen(o.Oldest)
	t.Seen(o.Newest)
}

// Seen counts the event time of a record; 0: it has none.
func (t *Tally) Seen(ms int64) {
	switch {
	case ms == 0:
	case t.Oldest == 0 && t.Newest == 0:
		t.Oldest, t.Newest = ms, ms
	default:
		t.Oldest, t.Newest = min(t.Oldest, ms), max(t.Newest, ms)
	}
}

// ack is a prefix that the master has not answered. Its Tally counts the records of [from,
// prefix). The master adds it only if exactly what lies below from is settled there. So once
// an ack may have been sent, it is never changed. Example: [100, 150) was sent with 50
// records. The records that are stepped next become a second ack, [150, 180).
type ack struct {
	from, prefix int64
	step         int64
	told         bool // the records were counted
	Tally
}

func (a ack) String() string { return fmt.Sprintf("{%d %d}", a.prefix, a.step) }

// fold adds b to a, if nobody asks which of the records was in which step.
func (c *Core) fold(a *ack, b ack) bool {
	if a.told != b.told || a.step != b.step && (c.model != "shared" || b.step == 0) {
		return false
	}
	a.prefix, a.step = b.prefix, b.step
	a.Tally.Add(b.Tally)
	return true
}

// said is an ack as it is sent, in one piece.
type said struct {
	ack   pb.Ack
	token pb.Token
	tally pb.Tally
}

func (a *ack) proto(l *lease) *pb.Ack {
	s := &said{}
	s.token.Epoch, s.token.Term, s.token.Sequence = l.token.Epoch, l.token.Term, l.token.Sequence
	s.ack.Token, s.ack.Prefix, s.ack.Step, s.ack.Worker, s.ack.From = &s.token, a.prefix, a.step, l.s.w.join.Worker, a.from
	if a.told {
		s.tally.Rows, s.tally.Oldest, s.tally.Newest = a.Rows, a.Oldest, a.Newest
		s.ack.Tally = &s.tally
	}
	return &s.ack
}
