package brokers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headrace/headrace/sources"
)

// List has the partitions that a source has listed. An adapter embeds one. Its zero value is
// ready. It has a lock of its own, so an adapter may call it while it holds its own lock.
type List[P fmt.Stringer] struct {
	mu     sync.Mutex // guards what follows
	closed bool
	parts  map[sources.PartitionID]P
	joined map[sources.PartitionID]bool
	now    *listing // the one that runs; nil if none does
}

// listing is one call of list, for all callers that wait for it.
type listing struct {
	ended chan struct{} // closed when the listing has ended
	err   error
	gone  bool // it ended because its caller gave up, which says nothing about the source
}

// ErrClosed is returned by a source after its Close.
var ErrClosed = errors.New("the source is closed")

// MarkClosed makes Usable fail from now on.
func (l *List[P]) MarkClosed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// Closed says whether MarkClosed was called.
func (l *List[P]) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Usable returns an error if the caller has gone or the source is closed.
func (l *List[P]) Usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.Closed() {
		return ErrClosed
	}
	return nil
}

// Put notes a listed partition.
func (l *List[P]) Put(id sources.PartitionID, p P) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts == nil {
		l.parts = map[sources.PartitionID]P{}
	}
	l.parts[id] = p
}

// Listed returns a partition that was listed.
func (l *List[P]) Listed(id sources.PartitionID) (P, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.parts[id]
	return p, ok
}

// All returns the listed partitions, in no order.
func (l *List[P]) All() map[sources.PartitionID]P {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[sources.PartitionID]P, len(l.parts))
	for id, p := range l.parts {
		all[id] = p
	}
	return all
}

// Find returns a listed partition. If it is not listed, Find calls list first. If another Find
// is listing already, it waits for that one, because a listing of hundreds of partitions may
// take hundreds of requests. If the partition is still not listed, the error is its id and
// unknown, as in "... is not a partition of dataset d".
func (l *List[P]) Find(ctx context.Context, id sources.PartitionID, list func(context.Context) ([]sources.PartitionID, error), unknown string) (P, error) {
	for {
		if p, ok := l.Listed(id); ok {
			return p, nil
		}
		var none P
		ls, first := l.lists()
		if !first {
			select {
			case <-ls.ended:
			case <-ctx.Done():
				return none, ctx.Err()
			}
			if ls.err != nil && !ls.gone {
				return none, ls.err
			}
			continue // it may have begun before this partition was there
		}
		_, ls.err = list(ctx)
		ls.gone = ctx.Err() != nil
		l.listedBy(ls)
		if ls.err != nil {
			return none, ls.err
		}
		if p, ok := l.Listed(id); ok {
			return p, nil
		}
		return none, fmt.Errorf("%s %s", id, unknown)
	}
}

// lists returns the listing to wait for, or a new one and true: the caller lists.
func (l *List[P]) lists() (ls *listing, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		l.now, first = &listing{ended: make(chan struct{})}, true
	}
	return l.now, first
}

func (l *List[P]) listedBy(ls *listing) {
	l.mu.Lock()
	l.now = nil
	l.mu.Unlock()
	close(ls.ended)
}

// Joined notes partitions that were added later. They are read from their beginning, also
// with start: latest.
func (l *List[P]) Joined(ids []sources.PartitionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.joined == nil {
		l.joined = map[sources.PartitionID]bool{}
	}
	for _, id := range ids {
		l.joined[id] = true
	}
}

// HasJoined says whether the partition was added to a topic that was already being read.
func (l *List[P]) HasJoined(id sources.PartitionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joined[id]
}

// PartitionName returns the partition as people write it.
func (l *List[P]) PartitionName(id sources.PartitionID) string {
	if p, ok := l.Listed(id); ok {
		return p.String()
	}
	return string(id)
}
