package push

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

	open   func(url string) (Putter, error) // nil: chunks go to the master
	bucket Putter
	asked  time.Time // when the master told its clock
}

// Putter puts a new object into a bucket, with a checksum that the service verifies. It is
// durable when PutNew returns. An error whose Temporary() is true is tried again. With any
// S3 client this is a few lines.
type Putter interface {
	PutNew(ctx context.Context, key string, data []byte) error
}

// Option changes how a Pusher works.
type Option func(*Pusher)

// OnWait has f called before each wait with the reason: the master is away, it cannot store
// a chunk, or the dataset is full. f may be called by several goroutines at once.
func OnWait(f func(reason error)) Option { return func(p *Pusher) { p.onWait = f } }

// Upload has chunks put into the dataset's bucket by this process, with its own
// credentials, and not by the master. open is given the s3://bucket/prefix that the master
// names; keys of Putter are below it. Open fails if the master has no bucket.
func Upload(open func(url string) (Putter, error)) Option {
	return func(p *Pusher) { p.open = open }
}

// Open asks the master how the dataset wants its records.
func Open(ctx context.Context, conn grpc.ClientConnInterface, dataset string, options ...Option) (*Pusher, error) {
	p := &Pusher{api: headracev1.NewLandingClient(conn), dataset: dataset, onWait: func(error) {}}
	for _, o := range options {
		o(p)
	}
	err := p.again(ctx, func() (err error) {
		p.asked = time.Now()
		p.layout, err = p.api.Layout(ctx, &headracev1.LayoutRequest{Dataset: dataset})
		return err
	})
	if err != nil || p.open == nil {
		return p, err
	}
	if p.layout.Upload == nil {
		return nil, fmt.Errorf("dataset %s: its master keeps chunks in its state folder, so only the master can write them: push without Upload, or set landing_storage: s3://... for the master", dataset)
	}
	if p.bucket, err = p.open(p.layout.Upload.Url); err != nil {
		return nil, fmt.Errorf("dataset %s: %s: %w", dataset, p.layout.Upload.Url, err)
	}
	return p, nil
}

// put stages a chunk in the bucket and returns its locator. Another try has another key: if
// the first one was stored after all, nobody commits it, and it is deleted after stage_ttl.
func (p *Pusher) put(ctx context.Context, id string, part int, data []byte) (string, error) {
	h, err := chunk.ReadHeader(data)
	if err != nil {
		return "", err
	}
	for wait := first; ; wait = min(2*wait, most) {
		at := time.UnixMilli(p.layout.Upload.NowMs).Add(time.Since(p.asked)) // of the master's clock
		l := chunk.Locator{Key: chunk.NewKey(p.layout.Upload.Stream, part, id, at).String(), Size: int64(len(data)), Records: h.Records, Sum: h.Sum}
		err := p.bucket.PutNew(ctx, l.Key, data)
		if err == nil {
			return l.String(), nil
		}
		if ctx.Err() != nil || !temporary(err) {
			return "", fmt.Errorf("a chunk of transaction %q could not be put: %w", id, err)
		}
		p.onWait(err)
		if !pause(ctx, wait) {
			return "", err
		}
	}
}

// temporary says whether the error of a Putter may pass.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

const first, most = 50 * time.Millisecond, 2 * time.Second // of waits

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
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
	for wait := first; ; wait = min(2*wait, most) {
		err := do()
		after := wait
		switch status.Code(err) {
		case codes.Unavailable:
		case codes.ResourceExhausted:
			told, full := retryAfter(err)
			if !full {
				return err // a message that is too large stays so
			}
			after = told
		default:
			return err
		}
		p.onWait(err)
		if !pause(ctx, after) {
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
