package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// A token's sequence is (number of the lease) << slotBits | slot. So a token is found without
// a map. Leases are numbered in the order in which they are granted. The slot of a closed
// lease stays in use until keepClosed other leases were closed, so that a repeated ack is
// still answered.
//
// A lease that its holder asserts to a new term keeps its token. The numbers of the new term
// go on above those of such leases, because nothing is granted before they are asserted. So
// of two leases that a holder has, the newer one has the higher sequence, also over restarts.
const (
	slotBits   = 24
	keepClosed = 1 << 14

	// maxTaken bounds the number in a token that is taken over. An agent that says a higher
	// one must not use up the numbers.
	maxTaken = 1 << (63 - slotBits)
)

// slot is a lease by its token: an open one, or the little that is kept of a closed one.
type slot struct {
	l     *lease  // nil: closed
	w     *holder // its holder when it closed; nil: its token is unknown
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
	last  uint64 // the highest number of a lease

	older map[Token]uint32 // slots of leases whose token is of an older term
}

// newLeaseTable allocates room for keepClosed leases at once. Later the table grows only
// with the number of open leases.
func newLeaseTable() leaseTable {
	t := leaseTable{
		slots: make([]slot, keepClosed+keepClosed/16),
		free:  line.NewQueue[uint32](2*keepClosed + keepClosed/8), // twice its items, so that it does not grow
		older: map[Token]uint32{},
	}
	clear(t.slots)
	t.slots = t.slots[:0]
	return t
}

// take gives an empty lease with a new token.
func (t *leaseTable) take(epoch, term uint32) *lease {
	l, s := t.put()
	t.last++
	l.token = Token{Epoch: epoch, Term: term, Sequence: t.last<<slotBits | uint64(l.slot)}
	s.l, s.token = l, l.token
	return l
}

// takeOver gives an empty lease with a token of an older term.
func (t *leaseTable) takeOver(k Token) *lease {
	l, s := t.put()
	t.last = max(t.last, k.Sequence>>slotBits)
	t.older[k] = l.slot
	l.token = k
	s.l, s.token = l, k
	return l
}

// put gives an empty lease in a slot of its own. The caller gives both their token.
func (t *leaseTable) put() (*lease, *slot) {
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
	*l = lease{slot: at}
	return l, &t.slots[at]
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
	if len(t.older) > 0 {
		delete(t.older, t.slots[at].token)
	}
}

// find gives the lease of a token, open or closed; nil: it is unknown.
func (lg *ledger) find(k Token) *slot {
	at := k.Sequence & (1<<slotBits - 1)
	if k.Term != lg.term {
		slot, ok := lg.leases.older[k]
		if !ok {
			return nil
		}
		at = uint64(slot)
	}
	if at >= uint64(len(lg.leases.slots)) {
		return nil
	}
	s := &lg.leases.slots[at]
	if s.token != k || s.l == nil && s.w == nil {
		return nil
	}
	return s
}
