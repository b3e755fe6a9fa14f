package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/headrace/headrace/internal/remoting"
)

const tracesMost = 32 // remembered of each queue

// trace tells a message from any other that has its offset at another time. All replicas store
// the same bytes, so the trace of a slave's message is the same. Its place in the commit log
// does not count: tiered storage (RocketMQ 5.1) writes another one when it uploads a message.
type trace struct {
	offset, born, stored int64
	crc                  uint32 // of the body
	more                 uint64 // a hash of the born host and of the properties, UNIQ_KEY among them
	size                 int
}

// traceSeed makes hashes that only this process compares.
var traceSeed = maphash.MakeSeed()

// trace returns the trace of the message at the beginning of b.
func (m *message) trace(b []byte) trace {
	var h maphash.Hash
	h.SetSeed(traceSeed)
	_, _ = h.Write(b[m.host[0]:m.host[1]])
	_, _ = h.Write(b[m.properties[0]:m.properties[1]])
	return trace{m.queueOffset, m.born, m.stored, m.crc, h.Sum64(), m.size}
}

// thinned drops every other one of the older half if there are too many, so that a few reach
// far back.
func thinned(all []trace) []trace {
	if len(all) <= tracesMost {
		return all
	}
	half := len(all) / 2
	few := all[:0]
	for i, t := range all {
		if i >= half || i%2 == 0 {
			few = append(few, t)
		}
	}
	return few
}

func (s *Source) startOne(ctx context.Context, l *look, offset int64) (*remoting.Pending, error) {
	return s.client.Start(ctx, l.addr, remoting.Pull{Queue: l.h.p.remote(), Group: s.o.group(), Offset: offset, Most: 1}.Command())
}

// errRemoved means that the broker has deleted a message. RocketMQ 4.x does not raise the minimum
// of a queue that has no message left.
var errRemoved = errors.New("the broker has removed the message")

// traceOf waits for a message. It returns nil if the broker does not have it now, and errRemoved
// if it will not have it again.
func (s *Source) traceOf(ctx context.Context, l *look, pending *remoting.Pending, offset int64) (*trace, int, error) {
	what := fmt.Sprintf("%s at offset %d", l.h.p, offset)
	a, err := pending.Wait(ctx, s.client.Answer())
	if err != nil {
		return nil, 0, s.explain(ctx, err, what)
	}
	switch a.Code {
	case remoting.OK:
	case remoting.PullRetry:
		return nil, 0, errRemoved
	case remoting.PullNotFound, remoting.PullMoved:
		return nil, 0, nil
	default:
		return nil, 0, s.explain(ctx, &remoting.Error{Addr: l.addr, Code: a.Code, Remark: a.Remark}, what)
	}
	var m message
	if m.read(a.Body) != nil || m.queueOffset != offset {
		return nil, len(a.Body), nil // damaged, or being removed: readers say so
	}
	t := m.trace(a.Body)
	return &t, len(a.Body), nil
}
