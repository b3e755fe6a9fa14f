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
	turn   chan struct{} // taken by the Find that lists
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

// Find returns a listed partition. If it is not listed, Find calls list first, or waits for
// another Find that lists: to list hundreds of partitions may take hundreds of requests. If it
// is still not listed, the error is its id and unknown, as in "... is not a partition of
// dataset d".
func (l *List[P]) Find(ctx context.Context, id sources.PartitionID, list func(context.Context) ([]sources.PartitionID, error), unknown string) (P, error) {
	if p, ok := l.Listed(id); ok {
		return p, nil
	}
	turn := l.lists()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		var none P
		return none, ctx.Err()
	}
	if p, ok := l.Listed(id); ok {
		return p, nil
	}
	if _, err := list(ctx); err != nil {
		var none P
		return none, err
	}
	p, ok := l.Listed(id)
	if !ok {
		return p, fmt.Errorf("%s %s", id, unknown)
	}
	return p, nil
}

func (l *List[P]) lists() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn == nil {
		l.turn = make(chan struct{}, 1)
	}
	return l.turn
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
