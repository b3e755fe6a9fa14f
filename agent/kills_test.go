package agent_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

const killRecords = 4000

func killSetup(t *testing.T) (*master, map[[2]int64]int) {
	t.Helper()
	root, begins := input(t, killRecords, 1500)
	return newMaster(t, "shared", fmt.Sprintf(lines, root), root), begins
}

func wantOnce(t *testing.T, begins map[[2]int64]int, got map[[2]int64]int, twiceAtMost int) {
	t.Helper()
	twice := 0
	for at := range begins {
		switch n := got[at]; {
		case n == 0:
			t.Fatalf("the record at %v was never applied", at)
		case n > 1:
			twice++
		}
	}
	if twice > twiceAtMost {
		t.Errorf("%d records were applied twice, want at most %d", twice, twiceAtMost)
	}
}

// Guarantee 6: a killed trainer's rows go to others, and the rows that it had stepped stay.
func TestAKilledTrainersRowsGoToOthersAtOnce(t *testing.T) {
	m, begins := killSetup(t)
	a := start(t, m, socketIn(t), nil)
	victim := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=1", "HEADRACE_TEST_HOLD=5")
	if !victim.await("holding") {
		t.Fatal("the trainer ended before it held a batch")
	}
	check(t, victim.cmd.Process.Signal(syscall.SIGKILL))
	m.until("a Leave of an ended process", func(toy *toymaster.Master) bool {
		return len(toy.Leaves) == 1 && toy.Leaves[0].Ended
	})
	other := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=0")
	if !other.await("done") {
		t.Fatal("the other trainer did not finish")
	}
	victim.await("never said")                     // reads all its output to the end
	wantOnce(t, begins, applied(victim, other), 0) // the held batch was not applied
	m.until("everything settled", (*toymaster.Master).Done)
}

// Steps that lie unread in the socket when a trainer is killed count: these batches are not granted
// again.
func TestStepsSaidBeforeAKillCount(t *testing.T) {
	m, begins := killSetup(t)
	a := start(t, m, socketIn(t), nil)
	victim := trainerProcess(t, a.socket, "HEADRACE_TEST_SPURT=600")
	m.until("a Leave of an ended process", func(toy *toymaster.Master) bool {
		return len(toy.Leaves) == 1 && toy.Leaves[0].Ended
	})
	other := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=0")
	if !other.await("done") {
		t.Fatal("the other trainer did not finish")
	}
	victim.await("never said") // reads all its output to the end
	wantOnce(t, begins, applied(victim, other), 0)
}

// Guarantee 6, shared: rows in the hands of a trainer that may still run are never given to another.
// Its process is ended first.
func TestASharedTrainerThatLivesWithoutConnectionIsEndedFirst(t *testing.T) {
	m, begins := killSetup(t)
	a := start(t, m, socketIn(t), nil)
	victim := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=1", "HEADRACE_TEST_HOLD=5")
	victim.await("holding")
	victim.say("drop")
	m.until("a Leave of an ended process", func(toy *toymaster.Master) bool {
		return len(toy.Leaves) == 1 && toy.Leaves[0].Ended && toy.Leaves[0].Reason == pb.Leave_KILLED
	})
	victim.await("never said") // ends with the process
	other := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=0")
	other.await("done")
	wantOnce(t, begins, applied(victim, other), 0)
}

func TestEndWorkerEndsAProcessThatDoesNotListen(t *testing.T) {
	m, _ := killSetup(t)
	a := start(t, m, socketIn(t), nil)
	victim := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=1", "HEADRACE_TEST_HOLD=1")
	victim.await("holding")
	m.do(func(toy *toymaster.Master) {
		toy.Tell(&pb.MasterMessage{Ends: []*pb.EndWorker{{Worker: toy.Workers()[0].Worker, Reason: "no progress for 10m"}}})
	})
	m.until("a Leave of a killed process", func(toy *toymaster.Master) bool {
		return len(toy.Leaves) == 1 && toy.Leaves[0].Ended && toy.Leaves[0].Reason == pb.Leave_KILLED
	})
}

// An agent is started again on its socket. Its living trainers find it, and bring their leases and
// unanswered steps.
func TestAnAgentStartedAgainIsFoundByItsLivingTrainers(t *testing.T) {
	m, begins := killSetup(t)
	socket := socketIn(t)
	a := start(t, m, socket, nil)
	one := trainerProcess(t, socket, "HEADRACE_TEST_RANK=0", "HEADRACE_TEST_HOLD=5")
	two := trainerProcess(t, socket, "HEADRACE_TEST_RANK=1", "HEADRACE_TEST_HOLD=7")
	one.await("holding")
	two.await("holding")
	check(t, a.stop())
	start(t, m, socket, nil)
	one.say("go")
	two.say("go")
	if !one.await("back") || !two.await("back") {
		t.Fatal("a trainer did not come back")
	}
	m.do(func(toy *toymaster.Master) { toy.Expire() }) // leases that nobody has re-asserted
	if !one.await("done") || !two.await("done") {
		t.Fatal("a trainer did not finish")
	}
	wantOnce(t, begins, applied(one, two), 0)
	m.until("everything settled", (*toymaster.Master).Done)
	m.do(func(toy *toymaster.Master) {
		if twice := toy.Overlap(); twice != "" {
			t.Errorf("these records were settled twice: %s", twice)
		}
	})
}

// The master is killed (kill -9). Holders assert their leases again and go on.
func TestTrainersGoOnWhileTheMasterIsStartedAgain(t *testing.T) {
	m, begins := killSetup(t)
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 10, Track: true}))(t)
	check(t, s.credit(4))
	seen := map[int]int{}
	for n := range 20 {
		b := must(s.next(0))(t)
		for i, at := range b.offsets {
			seen[begins[[2]int64{b.segment[i], at}]]++
		}
		check(t, s.step(int64(n+1), 1))
		check(t, s.credit(1))
		switch n {
		case 5:
			m.cutStreams()
		case 10, 15:
			m.restart()
		}
	}
	for {
		b, err := s.next(0)
		if err == errEnd {
			break
		}
		check(t, err)
		for i, at := range b.offsets {
			seen[begins[[2]int64{b.segment[i], at}]]++
		}
		check(t, s.step(int64(s.through)+1, 1))
		check(t, s.credit(1))
	}
	check(t, s.acked(s.through))
	for i := range killRecords {
		if seen[i] != 1 {
			t.Fatalf("record %d came %d times", i, seen[i])
		}
	}
	s.close()
	tr.bye()
}

// Guarantee 6: at the TTL a shared job's trainers are ended by their agent.
func TestWhenTrustEndsASharedTrainerIsEndedByItsAgent(t *testing.T) {
	m, _ := killSetup(t)
	m.do(func(toy *toymaster.Master) { toy.TTLMillis = 5000 }) // the trainer must be holding before it passes, on a busy machine too
	a := start(t, m, socketIn(t), nil)
	victim := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=0", "HEADRACE_TEST_HOLD=3")
	victim.await("holding")
	m.stop()
	victim.await("never said") // ends with the process
	if err := victim.cmd.Wait(); err == nil {
		t.Error("the trainer ended with status 0, want that its agent kills it")
	}
}

// Tails are stolen at any moment of a delivery. All batches stay whole, and each record comes once.
func TestTailsStolenAtAnyMomentCostAndRepeatNothing(t *testing.T) {
	m, begins := killSetup(t)
	m.do(func(toy *toymaster.Master) { toy.Units = 20000 })
	a := start(t, m, socketIn(t), nil)
	one := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=0")
	two := trainerProcess(t, a.socket, "HEADRACE_TEST_RANK=1")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	acks := -1
	m.until("everything settled", func(toy *toymaster.Master) bool {
		// One steal for each ack. With more, no trainer would get a whole batch.
		if n := toy.Leases(); n > 0 && len(toy.Acks) > acks {
			acks = len(toy.Acks)
			i := r.IntN(n)
			prefix, end := toy.LeaseSpan(i)
			toy.StealFrom(i, prefix+r.Int64N(end-prefix))
		}
		return toy.Done()
	})
	if !one.await("done") || !two.await("done") {
		t.Fatal("a trainer did not finish")
	}
	wantOnce(t, begins, applied(one, two), 0)
	m.do(func(toy *toymaster.Master) {
		if twice := toy.Overlap(); twice != "" {
			t.Errorf("these records were settled twice: %s", twice)
		}
		t.Logf("%d steals answered", len(toy.Stolen))
	})
}
