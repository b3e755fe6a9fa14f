package push

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// many is a landing of six partitions.
type many struct{ *kept }

func (m many) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	err := m.kept.Invoke(ctx, method, args, reply, o...)
	if r, ok := reply.(*headracev1.LayoutReply); ok {
		r.Partitions = 6
	}
	return err
}

// A commit in one call fails, and a stage after it ends in the middle: some chunks are staged
// then. The next commit sends the others, and no chunk twice.
func TestAStageThatEndsInTheMiddleRepeatsNothing(t *testing.T) {
	k := newKept()
	k.chunk, k.land = 1000, 1<<20
	p, err := Open(t.Context(), many{k}, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	tx := p.Begin("t1")
	for i := range 60 {
		r := value(i)
		r.Key = fmt.Append(nil, "k", i)
		if err := tx.Push(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	k.away()
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := tx.Commit(ctx); return err },
		func(ctx context.Context) error { _, err := tx.Stage(ctx); return err },
	} {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(short); err == nil {
			t.Error("the master is away, and there is no error")
		}
		cancel()
	}
	k.there()
	if done, err := tx.Commit(t.Context()); err != nil || done.Records != 60 {
		t.Errorf("%+v %v, 60 were pushed", done, err)
	}
}
