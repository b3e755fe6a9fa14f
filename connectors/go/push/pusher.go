package push

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/link"
)

// Record is one record. Records with the same key go to the same partition, in order.
type Record = chunk.Record

// Field is a header of a record.
type Field = chunk.Field

// Pusher pushes to one dataset. It is safe for concurrent use.
type Pusher struct {
	api     headracev1.LandingClient
	dataset string
	onWait  func(error)
	most    int // bytes of a commit; the master ends the connection of a pusher that sends more
	chunks  int // of a commit, at most
	told    atomic.Pointer[told]

	open    func(url string) (Putter, error) // nil: chunks go to the master
	mu      sync.Mutex
	buckets map[string]Putter // by URL; guarded by mu
}

// told is how the dataset wants its records, as the master said. A transaction keeps what it
// began with. Later the dataset may be deleted and applied again, or its chunks may go to
// another bucket.
type told struct {
	layout   *headracev1.LayoutReply
	bucket   Putter      // nil: chunks go to the master
	asked    time.Time   // when the master told its clock
	doubtful atomic.Bool // a call has failed for good since
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
	p := &Pusher{api: headracev1.NewLandingClient(conn), dataset: dataset, most: link.PusherMessage, chunks: mostChunks, onWait: func(error) {}, buckets: map[string]Putter{}}
	for _, o := range options {
		o(p)
	}
	_, err := p.ask(ctx)
	return p, err
}

// now is how the dataset wants a transaction that begins now. The master is asked again after
// a call has failed for good, because that may be the reason. Otherwise a writer with a bucket
// needs no master until its commit.
func (p *Pusher) now(ctx context.Context) (*told, error) {
	if t := p.told.Load(); !t.doubtful.Load() {
		return t, nil
	}
	return p.ask(ctx)
}

func (p *Pusher) ask(ctx context.Context) (*told, error) {
	t := &told{}
	err := p.again(ctx, func() (err error) {
		t.asked = time.Now()
		t.layout, err = p.api.Layout(ctx, &headracev1.LayoutRequest{Dataset: p.dataset})
		return err
	})
	if err != nil {
		return nil, err
	}
	if p.open != nil {
		if t.bucket, err = p.bucketOf(t.layout.Upload); err != nil {
			return nil, fmt.Errorf("dataset %s: %w", p.dataset, err)
		}
	}
	p.told.Store(t)
	return t, nil
}

func (p *Pusher) bucketOf(u *headracev1.Upload) (Putter, error) {
	if u == nil {
		return nil, errors.New("its master keeps chunks in its state folder, so only the master can write them: push without Upload, or set landing_storage: s3://... for the master")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.buckets[u.Url]; b != nil {
		return b, nil
	}
	b, err := p.open(u.Url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Url, err)
	}
	p.buckets[u.Url] = b
	return b, nil
}

// failed notes that a call has failed for good, or that a limit was reached. The next transaction
// asks the master again: the limit may have been raised since.
func (p *Pusher) failed() {
	if t := p.told.Load(); t != nil {
		t.doubtful.Store(true)
	}
}

// put stages a chunk in the bucket and returns its locator. Another try has another key: if
// the first one was stored after all, nobody commits it, and it is deleted after stage_ttl.
func (p *Pusher) put(ctx context.Context, t *told, id string, part int, data []byte) (string, error) {
	h, err := chunk.ReadHeader(data)
	if err != nil {
		return "", err
	}
	for wait := first; ; wait = min(2*wait, most) {
		at := time.UnixMilli(t.layout.Upload.NowMs).Add(time.Since(t.asked)) // of the master's clock
		l := chunk.Locator{Key: chunk.NewKey(t.layout.Upload.Stream, part, id, at).String(), Size: int64(len(data)), Records: h.Records, Sum: h.Sum}
		err := t.bucket.PutNew(ctx, l.Key, data)
		if err == nil {
			return l.String(), nil
		}
		if ctx.Err() != nil || !temporary(err) {
			p.failed()
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
	return &Transaction{p: p, id: id, next: chunk.FirstOf(id), size: proto.Size(&headracev1.CommitRequest{Dataset: p.dataset, Transaction: id}), slots: make(chan struct{}, staging), unsent: make(chan closed, staging)}
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
		case codes.OK:
			return nil
		default:
			p.failed()
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
