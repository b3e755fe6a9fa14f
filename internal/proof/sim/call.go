package sim

import (
	"fmt"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/cut"
)

// call is one question about cuts that a trainer has open. It is asked again on
// each new connection until it is answered.
type call struct {
	msg  *pb.CutCall
	done func(*pb.CutReply)
	said *link // on which connection
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

// bodies travel by their number: what is simulated is who knows which, not JSON.
func (w *World) bodyOf(c *cut.Cut) []byte {
	i := slices.Index(w.bodies, c)
	if i < 0 {
		i = len(w.bodies)
		w.bodies = append(w.bodies, c)
	}
	return []byte(fmt.Sprint(i + 1))
}

func (w *World) body(b []byte) *cut.Cut {
	if len(b) == 0 {
		return nil
	}
	var i int
	if _, err := fmt.Sscan(string(b), &i); err != nil {
		panic(err)
	}
	return w.bodies[i-1]
}
