package feed

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/agent/hold"
)

// departures is a Desk that notes who has left, and whether by a crash.
type departures struct {
	Desk
	said []hold.Gone
}

func (d *departures) Do(ev hold.Event) Answer {
	d.said = append(d.said, *ev.(*hold.Gone))
	return Answer{}
}

// The word of how the second one ended comes first. The master is told of them in the order
// in which they ended.
func TestTheMasterHearsOfATrainersEndAfterThoseOfEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &departures{}
		srv := &Server{cfg: Config{Desk: d}, trainers: map[uint32]*trainer{}, stopped: t.Context()}
		ended := func(number uint32) *trainer {
			p := &process{exited: make(chan struct{}), at: time.Now()}
			close(p.exited)
			k := &trainer{srv: srv, number: number, group: int(number), proc: p, cred: &unix.Ucred{}, left: make(chan struct{})}
			k.isolates.Store(true)
			srv.trainers[number] = k
			time.Sleep(time.Millisecond)
			return k
		}
		for _, k := range []*trainer{ended(2), ended(1)} {
			go func() {
				k.depart(false)
				close(k.left)
			}()
		}
		srv.fates.say(1, true)
		synctest.Wait()
		if len(d.said) > 0 {
			t.Fatalf("%+v was told before the end of the first one", d.said)
		}
		srv.fates.say(2, true)
		synctest.Wait()
		order := slices.Collect(func(yield func(uint32) bool) {
			for _, g := range d.said {
				if g.Crash && !yield(g.Worker) {
					return
				}
			}
		})
		if !slices.Equal(order, []uint32{2, 1}) {
			t.Errorf("crashes were told in the order %v, want 2 and 1", order)
		}
	})
}
