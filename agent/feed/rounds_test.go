package feed

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// A new agent may hear of a round before the trainer's new connection has given credit. Then it must
// tell the trainer of the round later: the group may be waiting for this round, and no other decision
// comes before it.
func TestARoundThatWasDecidedBeforeTheFirstCreditIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("", "hr") // not t.TempDir: with the name of the test its path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	trainer, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	st := &stream{rounds: &hold.Rounds{Series: 1}, wakeSend: make(chan struct{}, 1), wakeCut: make(chan struct{}, 1)}
	s := &sender{st: st, conn: conn}
	st.decided(hold.Round{Through: 11})
	if err := s.tellRound(); err != nil {
		t.Fatal(err)
	}
	st.credited(2)
	for range 2 { // the trainer is told once, however often it gives credit
		if err := s.tellRound(); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	var said []frame.Round
	var buf []byte
	for {
		h, payload, err := frame.ReadControl(trainer, &buf)
		if err != nil {
			break
		}
		var r frame.Round
		if err := json.Unmarshal(payload, &r); err != nil || h.Type != frame.TypeRound {
			t.Fatalf("%v: %s: %v", h.Type, payload, err)
		}
		said = append(said, r)
	}
	if len(said) != 1 || said[0].Through != 11 {
		t.Errorf("the trainer was told %+v", said)
	}
}

// The master decides to end a round, and meanwhile a virtual rank cannot read a range. The rows of
// the range come to this rank again, so its batch must not end before them.
func TestAVirtualRanksBatchEndsBehindItsLastRecordOnly(t *testing.T) {
	for _, x := range []struct {
		virtual uint32
		state   pb.Standing_State
		unread  bool
		ends    bool
	}{
		{0, pb.Standing_WAIT, true, true},
		{1, pb.Standing_DRAINED, false, true},
		{1, pb.Standing_END, false, true},
		{1, pb.Standing_DRAINED, true, false},
		{1, pb.Standing_WAIT, false, false},
	} {
		st := &stream{virtual: x.virtual, state: x.state, leases: []*lease{{dry: !x.unread}}}
		if (&cutter{st: st}).mayEnd() != x.ends {
			t.Errorf("mayEnd is %v for %+v", !x.ends, x)
		}
	}
}

// on_crash: isolate and tail="drop" exclude each other: a record that may crash its trainer comes in
// a batch of one, and tail="drop" wants full batches only.
func TestFullRoundsOnlyAreRefusedWhereRecordsMayComeAlone(t *testing.T) {
	for _, c := range []struct {
		onCrash, tail string
		refused       bool
	}{
		{dataset.OnCrashIsolate, frame.TailDrop, true},
		{dataset.OnCrashIsolate, frame.TailShort, false},
		{"", frame.TailDrop, false},
	} {
		st := &stream{ds: &Dataset{Name: "clicks", Spec: &dataset.Spec{OnCrash: c.onCrash}}, track: true}
		e := st.inRounds(&frame.Open{Rounds: &frame.Rounds{Series: 1, Tail: c.tail}})
		if (e != nil) != c.refused {
			t.Errorf("on_crash %q with tail %q got %v, want a refusal: %v", c.onCrash, c.tail, e, c.refused)
		}
	}
}
