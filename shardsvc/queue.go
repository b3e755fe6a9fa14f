package shardsvc

// queue is a FIFO that keeps its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(x T) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

func (q *queue[T]) pop() T {
	x := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}

// all is what waits, first in first.
func (q *queue[T]) all() []T { return q.items[q.head:] }

// keep drops what keep says no to.
func (q *queue[T]) keep(keep func(*T) bool) {
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
