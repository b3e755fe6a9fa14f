package landing

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/chunk"
)

// fullWait is how long a producer is told to wait if the dataset is full: about the time until
// something is deleted.
const fullWait = 2 * time.Second

// roomMost is the memory that all chunks take together while they are checked and stored: that
// of one of the largest. A chunk waits for its part before it is unpacked, and over HTTP before
// it is read.
const roomMost = 3 * chunk.MaxBytes

// fresh is a store that puts an object of a new key faster (storage.Folder).
type fresh interface {
	PutFresh(ctx context.Context, key string, data []byte) error
}

// take waits for room. back gives it back.
func (s *Service) take(ctx context.Context, bytes int64) (back func(), err error) {
	bytes = min(bytes, roomMost)
	if err := s.room.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("%w: other chunks are being stored, and all memory for them is in use: %w", ErrNotReady, err)
	}
	return func() { s.room.Release(bytes) }, nil
}

// Stage stores one chunk of a transaction. It is durable when Stage returns.
func (s *Service) Stage(ctx context.Context, name, transaction string, partition int, data []byte) (chunk.Locator, error) {
	p, err := s.stageable(ctx, name, transaction, partition)
	if err != nil {
		return chunk.Locator{}, err
	}
	h, err := chunk.ReadHeader(data)
	if err != nil {
		return chunk.Locator{}, noChunk(transaction, err)
	}
	back, err := s.take(ctx, h.Memory())
	if err != nil {
		return chunk.Locator{}, err
	}
	defer back()
	return s.stage(ctx, p, transaction, partition, data)
}

func noChunk(transaction string, err error) error {
	return fmt.Errorf("%w: a chunk of transaction %q: %w", ErrInvalid, transaction, err)
}

// stageable finds a dataset for which a chunk may be staged.
func (s *Service) stageable(ctx context.Context, name, transaction string, partition int) (*place, error) {
	p, err := s.place(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := checkTransaction(transaction); err != nil {
		return nil, err
	}
	return p, s.mayStage(p, partition)
}

func (s *Service) mayStage(p *place, partition int) error {
	if partition < 0 || partition >= p.Landing.Partitions {
		return fmt.Errorf("%w: dataset %s has no partition %d; it has %d", ErrInvalid, p.Name, partition, p.Landing.Partitions)
	}
	if p.ended() {
		return fmt.Errorf("%w: dataset %s has ended: a producer said that no record follows", ErrRefused, p.Name)
	}
	return nil
}

// stage is Stage when there is room.
func (s *Service) stage(ctx context.Context, p *place, transaction string, partition int, data []byte) (chunk.Locator, error) {
	o, err := chunk.Open(data)
	if err != nil {
		return chunk.Locator{}, noChunk(transaction, err)
	}
	for i := range o.Records {
		if n := int64(len(o.Record(i).Value)); n > p.MaxRecord {
			return chunk.Locator{}, fmt.Errorf("%w: record %d of a chunk of transaction %q has %d bytes, and landing.max_record is %d", ErrInvalid, i, transaction, n, p.MaxRecord)
		}
	}
	data = o.Pack(data)
	h, err := chunk.ReadHeader(data)
	if err != nil {
		return chunk.Locator{}, err
	}
	a, err := s.account(ctx, p.stream)
	if err != nil {
		return chunk.Locator{}, err
	}
	size := int64(len(data))
	if err := s.reserve(a, p, size); err != nil {
		return chunk.Locator{}, err
	}
	key := chunk.NewKey(p.stream, partition, transaction, s.now())
	put := s.store.Put
	if f, ok := s.store.(fresh); ok {
		put = f.PutFresh
	}
	if err := put(ctx, key.String(), data); err != nil {
		s.add(a, -size)
		return chunk.Locator{}, fmt.Errorf("%w: dataset %s: a chunk could not be stored: %w", ErrNotReady, p.Name, err)
	}
	s.cameTo(a, key.String(), size)
	l := chunk.Locator{Key: key.String(), Size: size, Records: h.Records, Sum: h.Sum}
	if err := ctx.Err(); err != nil { // nobody gets the locator
		s.drop(p, []chunk.Locator{l})
		return chunk.Locator{}, err
	}
	return l, nil
}

// reserve counts bytes that will be stored, unless that is too much.
func (s *Service) reserve(a *stored, p *place, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > p.MaxBytes {
		return fmt.Errorf("%w: a chunk of %d bytes never fits into dataset %s, whose landing.max_bytes is %d: raise max_bytes, or push smaller chunks", ErrInvalid, size, p.Name, p.MaxBytes)
	}
	if a.bytes+size > p.MaxBytes {
		return a.full(p, a.bytes)
	}
	a.bytes += size
	return nil
}

// full is the error of a stream that holds too much. s.mu is held.
func (a *stored) full(p *place, bytes int64) error {
	f := &Full{Dataset: p.Name, Stored: bytes, Most: p.MaxBytes, After: fullWait}
	if a.sorted {
		f.Staged = a.uncommitted
	}
	return f
}
