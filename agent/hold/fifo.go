package hold

import "slices"

// fifo is a queue that reuses its memory.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int    { return len(q.items) - q.head }
func (q *fifo[T]) at(i int) *T { return &q.items[q.head+i] }
func (q *fifo[T]) push(v T)    { q.items = append(q.items, v) }

// drop takes the last n away.
func (q *fifo[T]) drop(n int) []T {
	gone := slices.Clone(q.items[len(q.items)-n:])
	clear(q.items[len(q.items)-n:])
	q.items = q.items[:len(q.items)-n]
	return gone
}

// pop forgets the first n. Memory moves only when half of it is dead.
func (q *fifo[T]) pop(n int) {
	clear(q.items[q.head : q.head+n])
	q.head += n
	if q.head*2 >= len(q.items) {
		live := copy(q.items, q.items[q.head:])
		clear(q.items[live:])
		q.items, q.head = q.items[:live], 0
	}
}
