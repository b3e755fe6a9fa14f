package sim

import (
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"google.golang.org/protobuf/proto"
)

// call is a trainer's open question about cuts. The trainer asks it again on each new connection until it
// is answered.
type call struct {
	msg  *pb.CutCall
	done func(*pb.CutReply)
	said *link // the connection on which it was asked last
}

type answer struct{ r *pb.CutReply }

func (t *trainer) call(msg *pb.CutCall, done func(*pb.CutReply)) {
	t.calls++
	msg.Id = t.calls
	t.asks = append(t.asks, &call{msg: msg, done: done})
	t.flush()
}

func (t *trainer) answered(r *pb.CutReply) {
	i := slices.IndexFunc(t.asks, func(k *call) bool { return k.msg.Id == r.Id })
	if i < 0 {
		return
	}
	done := t.asks[i].done
	t.asks = slices.Delete(t.asks, i, i+1)
	if r.Code == pb.CutReply_FENCED {
		t.fence("the answer to a call: " + r.Reason)
		return
	}
	done(r)
}

// callRestore repeats a call of restore until it is decided, as the client does.
func (t *trainer) callRestore(k *pb.Restore, done func(*pb.CutReply)) {
	w := t.w
	began := w.now
	t.call(&pb.CutCall{Call: &pb.CutCall_Restore{Restore: k}}, func(r *pb.CutReply) {
		if r.Code != pb.CutReply_AGAIN {
			done(r)
			return
		}
		w.tracef(t.name, "restore: %v, %s", r.Code, r.Reason)
		t.after(w.time(50*millisecond, 500*millisecond), func() {
			again := proto.CloneOf(k)
			again.WaitedMs += uint64((w.now - began) / millisecond)
			t.callRestore(again, done)
		})
	})
}
