package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// A token's sequence is (number of the lease) << slotBits | slot. So a token is found without
// a map. Leases are numbered in the order in which they are granted, so of two leases of a
// term the later one has the higher sequence. The slot of a closed lease stays in use until
// keepClosed other leases were closed, so that a repeated ack is still answered.
const (
	slotBits   = 24
	keepClosed = 1 << 14
)

// slot is a lease by its token: an open one, or the little that is kept of a closed one.
type slot struct {
	l     *lease  // nil: closed
	w     *holder // whose it was when it closed; nil: its token is unknown
	final int64   // of a closed one, in order space: all below is settled
	token Token
}

func (s *slot) holder() *holder {
	if s.l != nil {
		return s.l.w
	}
	return s.w
}

type leaseTable struct {
	slots []slot
	free  line.Queue[uint32] // of closed leases, in the order of closing
	spare []*lease
	last  uint64 // the number of the newest lease

	retold map[Token]Token  // by their token of an older term, leases' tokens of this one
	was    map[uint32]Token // keys of retold by slot
}

// newLeaseTable allocates room for keepClosed leases at once. Later the table grows only
// with the number of open leases.
func newLeaseTable() leaseTable {
	t := leaseTable{
		slots:  make([]slot, keepClosed+keepClosed/16),
		free:   line.NewQueue[uint32](keepClosed + keepClosed/4),
		retold: map[Token]Token{},
		was:    map[uint32]Token{},
	}
	clear(t.slots)
	t.slots = t.slots[:0]
	return t
}

// take gives an empty lease with a new token.
func (t *leaseTable) take(epoch, term uint32) *lease {
	var at uint32
	if t.free.Len() > keepClosed || len(t.slots) == 1<<slotBits-1 {
		at = t.free.Pop()
		t.erase(at)
	} else {
		at = uint32(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	var l *lease
	if n := len(t.spare); n > 0 {
		l, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		l = &lease{}
	}
	s := &t.slots[at]
	t.last++
	*l = lease{slot: at, token: Token{Epoch: epoch, Term: term, Sequence: t.last<<slotBits | uint64(at)}}
	s.l, s.token = l, l.token
	return l
}

// close keeps only what is needed to answer a repeated ack of l. l stays readable until
// the next lease is taken.
func (t *leaseTable) close(l *lease) {
	s := &t.slots[l.slot]
	s.l, s.w, s.final = nil, l.w, l.prefix-l.shift
	t.free.Push(l.slot)
	t.spare = append(t.spare, l)
}

// erase makes a closed lease's token unknown.
func (t *leaseTable) erase(at uint32) {
	t.slots[at].w = nil
	if len(t.was) > 0 {
		if old, ok := t.was[at]; ok {
			delete(t.retold, old)
			delete(t.was, at)
		}
	}
}

// retell remembers the token that l had in an older term. If another lease had that token
// too, and l was a part of it, the token goes on to name that other lease.
func (t *leaseTable) retell(old Token, l *lease) {
	if _, ok := t.retold[old]; ok || old.Term == l.token.Term {
		return
	}
	t.retold[old], t.was[l.slot] = l.token, old
}

// current is the token by which a lease is known in this term.
func (t *leaseTable) current(k Token) Token {
	if now, ok := t.retold[k]; ok {
		return now
	}
	return k
}

// find gives the lease of a token, open or closed; nil: it is unknown.
func (lg *ledger) find(k Token) *slot {
	if k.Term != lg.term {
		if k = lg.leases.current(k); k.Term != lg.term {
			return nil
		}
	}
	at := k.Sequence & (1<<slotBits - 1)
	if at >= uint64(len(lg.leases.slots)) {
		return nil
	}
	s := &lg.leases.slots[at]
	if s.token != k || s.l == nil && s.w == nil {
		return nil
	}
	return s
}
