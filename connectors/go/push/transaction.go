package push

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
)

// staging is how many chunks of a transaction are sent at a time.
const staging = 4

// mostChunks bounds a commit, as in master/landing.
const mostChunks = 250_000

// Transaction is records that become visible together. It is used by one goroutine.
//
// When the context of a call ends, nothing is lost: the call can be repeated with another
// context. If a chunk cannot be stored, the transaction has failed, and each later call returns
// that error: begin a transaction with the same id and push all of its records again.
type Transaction struct {
	p        *Pusher
	id       string
	told     *told           // nil: nothing was pushed yet
	builders []chunk.Builder // by partition
	records  int64
	next     int                    // partition of the records without a key
	named    bool                   // the chunks were named, so a commit may have been made
	last     []*headracev1.NewChunk // what was not sent when Commit was called; nil: it was not

	slots  chan struct{} // one for each chunk that is closed and not yet durable
	unsent chan closed   // chunks whose context ended; they keep their slots
	mu     sync.Mutex
	names  []string // locators, in the order in which their chunks were closed
	size   int      // bytes of the commit so far
	staged int      // chunks that are durable
	err    error    // the first failure
}

// closed is a chunk that gets no more records.
type closed struct {
	at   int // in names
	part int
	data []byte
}

// ID names the transaction.
func (t *Transaction) ID() string { return t.id }

// Records is how many were pushed.
func (t *Transaction) Records() int64 { return t.records }

// Push adds a record, and sends a chunk when one is full. It copies the record. After an
// error the record is not in the transaction. Nothing can be pushed once Stage or Commit has
// stored all chunks.
func (t *Transaction) Push(ctx context.Context, r Record) error {
	if t.named {
		return fmt.Errorf("transaction %q was staged or committed, so a record that is pushed now might never be visible: begin another transaction", t.id)
	}
	if err := t.failure(); err != nil {
		return err
	}
	if t.told == nil {
		now, err := t.p.now(ctx)
		if err != nil {
			return err
		}
		t.told, t.builders = now, make([]chunk.Builder, now.layout.Partitions)
	}
	layout := t.told.layout
	if n := int64(len(r.Value)); n > layout.MaxRecord {
		t.p.failed()
		return fmt.Errorf("record %d of transaction %q has %d bytes, and max_record of dataset %s is %d: raise it in the spec and apply that", t.records, t.id, n, t.p.dataset, layout.MaxRecord)
	}
	if r.Key == nil && layout.Key != "" {
		key, err := chunk.KeyOf(layout.Key, r.Value)
		if err != nil {
			return fmt.Errorf("record %d of transaction %q: %w", t.records, t.id, err)
		}
		r.Key = key
	}
	part := chunk.PartitionOf(r.Key, len(t.builders), t.next)
	for t.full(part) { // the context of an earlier call ended
		if err := t.send(ctx, part); err != nil {
			return err
		}
		part = chunk.PartitionOf(r.Key, len(t.builders), t.next)
	}
	t.builders[part].Add(r)
	t.records++
	if t.full(part) && t.send(ctx, part) != nil {
		// If the context has ended, the chunk goes with the next call.
		return t.failure()
	}
	return nil
}

func (t *Transaction) full(part int) bool {
	return int64(t.builders[part].Size()) >= t.told.layout.ChunkBytes
}

// send stages the chunk of a partition in the background, and waits while too many are on
// their way. If the context ends meanwhile, the chunk stays as it is.
func (t *Transaction) send(ctx context.Context, part int) error {
	b := &t.builders[part]
	if b.Records() == 0 {
		return t.failure()
	}
	if err := t.slot(ctx); err != nil {
		return err
	}
	t.next++
	t.mu.Lock()
	c := closed{len(t.names), part, b.Chunk()}
	t.names = append(t.names, "")
	t.mu.Unlock()
	b.Reset()
	t.launch(ctx, c)
	return t.failure()
}

// slot waits for a slot. Meanwhile it sends again the chunks whose context has ended.
func (t *Transaction) slot(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case c := <-t.unsent:
			t.launch(ctx, c)
		case t.slots <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// launch stages a chunk that has a slot.
func (t *Transaction) launch(ctx context.Context, c closed) {
	go func() {
		locator, err := t.p.stage(ctx, t.told, t.id, c.part, c.data)
		if err != nil && ended(ctx, err) {
			t.unsent <- c
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			t.names[c.at] = locator
			t.staged++
			t.size += proto.Size(&headracev1.CommitRequest{Locators: []string{locator}})
			if t.size > t.p.most || t.staged > t.p.chunks {
				err = t.p.tooMany(t.id, t.staged)
			}
		}
		if err != nil && t.err == nil {
			t.err = err
		}
		<-t.slots
	}()
}

func (p *Pusher) tooMany(id string, chunks int) error {
	p.failed()
	return fmt.Errorf("transaction %q has %d chunks, and a commit has at most %d chunks and %d MiB: make landing.chunk in the spec larger and apply that, or push fewer records in a transaction", id, chunks, p.chunks, p.most>>20)
}

// ended says whether a call failed because its context has ended.
func ended(ctx context.Context, err error) bool {
	if _, bounded := ctx.Deadline(); bounded && status.Code(err) == codes.DeadlineExceeded {
		<-ctx.Done() // the master's timer was a little faster
	}
	return ctx.Err() != nil
}

// stage sends a chunk to the master, or puts it into the bucket.
func (p *Pusher) stage(ctx context.Context, t *told, id string, part int, data []byte) (locator string, err error) {
	if t.bucket != nil {
		return p.put(ctx, t, id, part, data)
	}
	err = p.again(ctx, func() error {
		reply, err := p.api.Stage(ctx, &headracev1.StageRequest{Dataset: p.dataset, Transaction: id, Partition: uint32(part), Chunk: data})
		if err == nil {
			locator = reply.Locator
		}
		return err
	})
	return locator, err
}

func (t *Transaction) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Stage sends what is not sent yet, and waits until all of it is durable. The locators are
// what another process needs to commit the transaction. Nothing can be pushed after it.
func (t *Transaction) Stage(ctx context.Context) (locators []string, _ error) {
	t.last = nil // the builders are staged from here on, also if that ends in the middle
	for part := range t.builders {
		if err := t.send(ctx, part); err != nil {
			return nil, err
		}
	}
	if err := t.settle(ctx); err != nil {
		return nil, err
	}
	t.named = true
	return slices.Clone(t.names), nil
}

// settle waits until all chunks that were sent are durable.
func (t *Transaction) settle(ctx context.Context) error {
	// All slots are free then.
	free := 0
	defer func() {
		for range free {
			<-t.slots
		}
	}()
	for free < staging {
		if err := t.slot(ctx); err != nil {
			return err
		}
		free++
		if err := t.failure(); err != nil {
			return err
		}
	}
	return nil
}

// Done is the answer to a commit.
type Done struct {
	Already bool  // the transaction was visible before: nothing was added now
	Records int64 // of the transaction as it is visible
}

// Commit stages the rest and makes the transaction visible, in one call of the master if it is not
// too much. After an error it can be called again: the records become visible once. After a chunk
// could not be stored, each call returns that error.
func (t *Transaction) Commit(ctx context.Context) (Done, error) {
	if t.inOneCall() {
		done, err := t.land(ctx)
		if status.Code(err) != codes.Unimplemented {
			return done, err
		}
		// A master of an older version is there now, and Land is what it does not know. If an earlier
		// try has landed, this master remembers the id as well, and the commit adds nothing.
	}
	locators, err := t.Stage(ctx)
	if err != nil {
		return Done{}, err
	}
	return t.p.Commit(ctx, t.id, locators)
}

// inOneCall says whether what is not sent yet goes with the commit: the master takes so much, and
// no other chunk is on its way. Beside one it is sooner staged.
func (t *Transaction) inOneCall() bool {
	if t.told == nil || t.told.bucket != nil || t.told.layout.LandBytes == 0 || t.last == nil && len(t.slots) > 0 {
		return false
	}
	records := 0
	for i := range t.builders {
		records += t.builders[i].Size()
	}
	return records > 0 && int64(records) <= t.told.layout.LandBytes
}

// land is Commit in one call. The records stay in their builders, so that Stage can be called
// after an error.
func (t *Transaction) land(ctx context.Context) (Done, error) {
	if err := t.settle(ctx); err != nil {
		return Done{}, err
	}
	t.named = true
	if t.last == nil {
		for part := range t.builders {
			if b := &t.builders[part]; b.Records() > 0 {
				t.last = append(t.last, &headracev1.NewChunk{Partition: uint32(part), Chunk: b.Chunk()})
			}
		}
	}
	req := &headracev1.LandRequest{Dataset: t.p.dataset, Transaction: t.id, Locators: t.names, Chunks: t.last}
	if chunks := len(req.Locators) + len(req.Chunks); proto.Size(req) > t.p.most || chunks > t.p.chunks {
		return Done{}, t.p.tooMany(t.id, chunks)
	}
	var d Done
	err := t.p.again(ctx, func() error {
		reply, err := t.p.api.Land(ctx, req)
		if err == nil {
			d = Done{reply.Already, reply.Records}
		}
		return err
	})
	return d, err
}

// Landed says whether a transaction is visible. Ask before its records are sent again.
func (p *Pusher) Landed(ctx context.Context, id string) (d Done, landed bool, err error) {
	err = p.again(ctx, func() error {
		reply, err := p.api.Landed(ctx, &headracev1.LandedRequest{Dataset: p.dataset, Transaction: id})
		if err == nil {
			d, landed = Done{reply.Landed, reply.Records}, reply.Landed
		}
		return err
	})
	return d, landed, err
}

// Commit makes a transaction visible whose chunks were staged, by whichever process.
func (p *Pusher) Commit(ctx context.Context, id string, locators []string) (Done, error) {
	req := &headracev1.CommitRequest{Dataset: p.dataset, Transaction: id, Locators: locators}
	if proto.Size(req) > p.most || len(locators) > p.chunks {
		return Done{}, p.tooMany(id, len(locators))
	}
	var d Done
	err := p.again(ctx, func() error {
		reply, err := p.api.Commit(ctx, req)
		if err == nil {
			d = Done{reply.Already, reply.Records}
		}
		return err
	})
	return d, err
}
