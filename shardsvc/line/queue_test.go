package line

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestAQueueGivesItsItemsInOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		q, want := NewQueue[int](rng.IntN(20)), []int{}
		next, push := 0, 1+rng.IntN(9)
		for range 500 {
			switch {
			case rng.IntN(100) == 0:
				odd := rng.IntN(2)
				q.Keep(func(x *int) bool { return *x%2 == odd })
				want = slices.DeleteFunc(want, func(x int) bool { return x%2 != odd })
			case rng.IntN(10) < push:
				q.Push(next)
				want = append(want, next)
				next++
			case q.Len() > 0:
				if x := q.Pop(); x != want[0] {
					t.Fatalf("got %d, want %d", x, want[0])
				}
				want = want[1:]
			}
			if q.Len() != len(want) || !slices.Equal(q.All(), want) {
				t.Fatalf("got %v, want %v", q.All(), want)
			}
		}
	}
}

// A queue that is nearly full and whose items go round moved all of them with each Push.
func TestItemsThatGoRoundAreMovedSeldom(t *testing.T) {
	for _, n := range []int{1, 2, 100, 10_240} {
		for _, room := range []int{n, n + 1, n + n/4, 2 * n} {
			q := NewQueue[int](room)
			for i := range n {
				q.Push(i)
			}
			const rounds = 100_000
			moved := 0
			for range rounds {
				x := q.Pop()
				first, head := &q.items[:1][0], q.head
				q.Push(x)
				if first != &q.items[0] || q.head < head {
					moved += n
				}
			}
			if moved > 2*rounds+4*n {
				t.Errorf("%d items with room for %d: %d pushes moved %d items", n, room, rounds, moved)
			}
			if c := cap(q.items); c > max(room, 4*n) {
				t.Errorf("%d items with room for %d take the memory of %d", n, room, c)
			}
		}
	}
}

func BenchmarkQueueThatIsNearlyFull(b *testing.B) {
	for _, n := range []int{100, 10_240} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := NewQueue[int](n + 1)
			for i := range n {
				q.Push(i)
			}
			for b.Loop() {
				q.Push(q.Pop())
			}
		})
	}
}
