package agent_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

// A steal gets rows that lie in the agent and are not delivered. It never gets delivered rows.
func TestABufferedTailCanBeStolenAndADeliveredOneNot(t *testing.T) {
	root, begins := input(t, 1000, 1000)
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	m.do(func(toy *toymaster.Master) { toy.Units = 1 << 20 }) // one lease
	a := start(t, m, socketIn(t), nil)
	slow := must(hello(a.socket, frame.Hello{Rank: 0, WorldSize: 2}))(t)
	s := must(slow.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(2))
	must(s.next(1))(t) // two batches are delivered, and more lie in the agent
	delivered := s.batches[1].spans[len(s.batches[1].spans)-1].LeaseTo
	m.do(func(toy *toymaster.Master) { toy.StealFrom(0, 0) })
	m.until("the answer", func(toy *toymaster.Master) bool { return len(toy.Stolen) == 1 })
	m.do(func(toy *toymaster.Master) {
		if got := toy.Stolen[0]; got.Refused || got.At != delivered {
			t.Errorf("the steal was answered %v, want the end of the delivered rows, %d", got, delivered)
		}
	})
	fast := must(hello(a.socket, frame.Hello{Rank: 1, WorldSize: 2}))(t)
	f := must(fast.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, f.credit(8))
	seen := map[int]int{}
	for range 2 {
		for i, at := range s.batches[0].offsets {
			seen[begins[[2]int64{s.batches[0].segment[i], at}]]++
		}
		check(t, s.step(int64(s.through)+1, 1))
	}
	check(t, s.acked(s.through))
	s.close()
	drainStream(t, f, 10, begins, seen)
	for i := range 1000 {
		if seen[i] != 1 {
			t.Fatalf("record %d came %d times", i, seen[i])
		}
	}
	slow.bye()
	fast.bye()
}

// Guarantee 9: a slow trainer slows nobody else.
func TestATrainerThatTakesNothingSlowsNobody(t *testing.T) {
	root, begins := input(t, 20_000, 5000) // more rows than the idle trainer's credit
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	a := start(t, m, socketIn(t), nil)
	idle := must(hello(a.socket, frame.Hello{Rank: 0, WorldSize: 2}))(t)
	s := must(idle.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(1000)) // this trainer never reads
	m.until("its lease", func(toy *toymaster.Master) bool { return toy.Leases() > 0 })
	busy := must(hello(a.socket, frame.Hello{Rank: 1, WorldSize: 2}))(t)
	b := must(busy.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, b.credit(8))
	seen := map[int]int{}
	for n := range 50 {
		bt := must(b.next(0))(t)
		for i, at := range bt.offsets {
			seen[begins[[2]int64{bt.segment[i], at}]]++
		}
		check(t, b.step(int64(n+1), 1))
		check(t, b.credit(1))
	}
	b.close()
	busy.bye()
	s.close()
	idle.bye()
}

func TestMaxWaitShortensABatchButNeverEmptiesIt(t *testing.T) {
	root, _ := input(t, 25, 25)
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	m.do(func(toy *toymaster.Master) { toy.Units = 100 })
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 2}))(t)
	wait := int64(30)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 1000, Track: true, MaxWaitMS: &wait}))(t)
	other := must(tr.open(2, frame.Open{Dataset: "lines", Rows: 3, Track: true}))(t)
	check(t, other.credit(1))
	must(other.next(0))(t) // this stream has unstepped records, so the input is not drained
	check(t, s.credit(10))
	b := must(s.next(0))(t)
	if n := len(b.offsets); n == 0 || n >= 1000 {
		t.Errorf("the batch that max_wait ended has %d rows, want 1 to 999", n)
	}
	s.close()
	other.close()
	tr.bye()
}

func TestAnUntrackedStreamIsAckedAsItIsSent(t *testing.T) {
	m, a, begins := setUp(t, 500)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10}))(t)
	check(t, s.credit(100))
	seen := 0
	for {
		b, err := s.next(0)
		if err == errEnd {
			break
		}
		check(t, err)
		seen += len(b.offsets)
		s.batches = s.batches[1:]
	}
	if seen != len(begins) {
		t.Errorf("%d of %d records came", seen, len(begins))
	}
	m.until("everything settled", (*toymaster.Master).Done)
	m.do(func(toy *toymaster.Master) {
		for _, k := range toy.Acks {
			if k.Step != 0 {
				t.Errorf("an untracked stream was acked with step %d, want 0", k.Step)
			}
		}
	})
	s.close()
	tr.bye()
}

func TestARefusedAckFencesTheTrainer(t *testing.T) {
	m, a, _ := setUp(t, 500)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(2))
	must(s.next(0))(t)
	// The master loses its leases, and the agent does not notice.
	m.do(func(toy *toymaster.Master) {
		sessions := toy.Detach()
		toy.Restart()
		toy.Attach(sessions)
	})
	check(t, s.step(1, 1))
	_, err := tr.expect(frame.TypeFenced)
	check(t, err)
	s.close()
	tr.bye()
}

func TestAFenceReachesTheTrainer(t *testing.T) {
	m, a, _ := setUp(t, 500)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	m.do(func(toy *toymaster.Master) {
		toy.Tell(&pb.MasterMessage{Fences: []*pb.Fence{{Worker: toy.Workers()[0].Worker, Reason: "generation 1 has ended"}}})
	})
	msg := must(tr.expect(frame.TypeFenced))(t)
	if f := must(frame.Decode[frame.Fenced](msg.Type, msg.payload))(t); f.Reason != "generation 1 has ended" {
		t.Errorf("the trainer was told %+v, want the reason of the fence", f)
	}
	tr.bye()
}

// Guarantee 6, private: at the TTL yields stop, nobody is killed, and the trainer goes on after its
// leases were asserted again.
func TestWhenTrustEndsAPrivateTrainerWaitsAndGoesOn(t *testing.T) {
	root, begins := input(t, 400, 400)
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	m.do(func(toy *toymaster.Master) { toy.TTLMillis = 300 })
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(1))
	must(s.next(0))(t)
	m.stop()
	for over := false; !over; {
		check(t, frame.WriteControl(tr.control, frame.TypePing, 0, 0, frame.Ping{T: json.Number("1")}))
		msg := must(tr.expect(frame.TypePong))(t)
		over = must(frame.Decode[frame.Pong](msg.Type, msg.payload))(t).SessionMS == 0
	}
	check(t, s.credit(1))
	check(t, s.data.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if _, err := s.next(1); err == nil {
		t.Fatal("a batch was sent after the session was over")
	}
	check(t, s.data.SetReadDeadline(time.Now().Add(patience)))
	m.restart()
	seen := map[int]int{}
	drainStream(t, s, 10, begins, seen)
	for i := range 400 {
		if seen[i] != 1 {
			t.Fatalf("record %d came %d times", i, seen[i])
		}
	}
	s.close()
	tr.bye()
}
