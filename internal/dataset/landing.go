package dataset

import (
	"context"
	"errors"
	"time"
)

// ErrNoChunk: a chunk of pushed records is not stored any more.
var ErrNoChunk = errors.New("the chunk is not stored any more")

// Landing is how a dataset takes records that are pushed to the master.
type Landing struct {
	Partitions int
	Key        string        // JSON Pointer to the key of a record that has none of its own; "": none
	Ends       bool          // producers may say that no record follows
	ChunkBytes int64         // how large a chunk is best, before compression
	MaxRecord  int64         // bytes of a value
	MaxBytes   int64         // of all stored chunks; above, nothing more is staged
	StageTTL   time.Duration // a transaction is committed within it, or never
	Remember   time.Duration // a repeated commit is recognised within it; at least StageTTL
	Retain     time.Duration // a chunk stays at least so long, also when nothing needs it
}

// Lander is implemented by parts whose records are pushed to the master.
type Lander interface{ Landing() Landing }

// Landing is that of the spec's source; false: nothing can be pushed to it.
func (s *Spec) Landing() (Landing, bool) {
	if l, ok := s.Source.(Lander); ok {
		return l.Landing(), true
	}
	return Landing{}, false
}

// Chunks gives stored chunks of pushed records. Its errors are those of a source:
// *sources.Temporary, where another try may help. ErrNoChunk: it is not there.
type Chunks interface {
	// Stream is the id of all records that were pushed to a dataset since it was applied.
	Stream(ctx context.Context, dataset string) (string, error)
	// Get reads the chunk of a key.
	Get(ctx context.Context, key string) ([]byte, error)
	// Has says whether the chunk of a key is stored.
	Has(ctx context.Context, key string) (bool, error)
	// Release deletes the stream of a dataset with its chunks.
	Release(ctx context.Context, dataset string) error
}
