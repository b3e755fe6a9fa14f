package push

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
)

// Record is one record. Records with the same key go to the same partition, in order.
type Record = chunk.Record

// Field is a header of a record.
type Field = chunk.Field

// Pusher pushes to one dataset. It is safe for concurrent use.
type Pusher struct {
	api     headracev1.LandingClient
	dataset string
	layout  *headracev1.LayoutReply
	onWait  func(error)
}

// Option changes how a Pusher works.
type Option func(*Pusher)

// OnWait has f called before each wait with the reason: the master is away, it cannot store
// a chunk, or the dataset is full. f may be called by several goroutines at once.
func OnWait(f func(reason error)) Option { return func(p *Pusher) { p.onWait = f } }

// Open asks the master how the dataset wants its records.
func Open(ctx context.Context, conn grpc.ClientConnInterface, dataset string, options ...Option) (*Pusher, error) {
	p := &Pusher{api: headracev1.NewLandingClient(conn), dataset: dataset, onWait: func(error) {}}
	for _, o := range options {
		o(p)
	}
	err := p.again(ctx, func() (err error) {
		p.layout, err = p.api.Layout(ctx, &headracev1.LayoutRequest{Dataset: dataset})
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Begin starts a transaction. The id is unique for good; "" makes one up. Nothing is sent.
func (p *Pusher) Begin(id string) *Transaction {
	if id == "" {
		id = "push-" + rand.Text()
	}
	n := int(p.layout.Partitions)
	return &Transaction{p: p, id: id, builders: make([]chunk.Builder, n), slots: make(chan struct{}, staging)}
}

// End says that no record follows, from any producer. The dataset's spec must allow it.
func (p *Pusher) End(ctx context.Context) error {
	return p.again(ctx, func() error {
		_, err := p.api.End(ctx, &headracev1.EndRequest{Dataset: p.dataset})
		return err
	})
}

// again tries until the master answers with anything but "later".
func (p *Pusher) again(ctx context.Context, do func() error) error {
	const first, most = 50 * time.Millisecond, 2 * time.Second
	for wait := first; ; wait = min(2*wait, most) {
		err := do()
		pause := wait
		switch status.Code(err) {
		case codes.Unavailable:
		case codes.ResourceExhausted:
			after, full := retryAfter(err)
			if !full {
				return err // a message that is too large stays so
			}
			pause = after
		default:
			return err
		}
		p.onWait(err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func retryAfter(err error) (time.Duration, bool) {
	for _, d := range status.Convert(err).Details() {
		if full, ok := d.(*headracev1.LandingFull); ok {
			return time.Duration(full.RetryAfterMs) * time.Millisecond, true
		}
	}
	return 0, false
}
