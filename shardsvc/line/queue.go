package line

// Queue is a FIFO that keeps its memory.
type Queue[T any] struct {
	items []T
	head  int
}

// NewQueue takes the memory of n items at once.
func NewQueue[T any](n int) Queue[T] {
	items := make([]T, n)
	clear(items)
	return Queue[T]{items: items[:0]}
}

func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push appends x. If the memory is full, the items move to its beginning only if at least half of
// it is free there, and else to larger memory. So n calls move at most about 2n items.
func (q *Queue[T]) Push(x T) {
	if len(q.items) == cap(q.items) && q.head > 0 && 2*q.head >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

func (q *Queue[T]) Pop() T {
	x := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}

// All returns the items in the queue, the oldest first.
func (q *Queue[T]) All() []T { return q.items[q.head:] }

// Keep drops the items for which keep is false.
func (q *Queue[T]) Keep(keep func(*T) bool) {
	n := 0
	for i := q.head; i < len(q.items); i++ {
		if keep(&q.items[i]) {
			q.items[n] = q.items[i]
			n++
		}
	}
	clear(q.items[n:])
	q.items, q.head = q.items[:n], 0
}
