package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headrace/headrace/internal/schema"
	"github.com/headrace/headrace/sources"
)

// Bounds of what one process keeps.
const (
	maxKnown   = 1 << 12  // ids
	maxBytes   = 64 << 20 // of schemas' text
	maxMissing = 1 << 16  // ids that the registry does not know
	askAgainIn = 30 * time.Second
)

// Registry knows the schemas of one registry. It is safe for concurrent use.
type Registry struct {
	client  *client
	log     *slog.Logger
	flights singleflight.Group

	mu    sync.Mutex
	known map[uint32]*known
	// missing are ids that the registry does not know. They are kept apart, so that values that
	// are not in the wire format cannot push schemas out.
	missing map[uint32]missing
	swept   time.Time // when old ids were last removed from missing
	bytes   int
	clock   uint64 // counts uses
	failed  int    // requests in a row that the registry did not answer
}

// known is what is known of an id.
type known struct {
	schema *schema.Schema
	err    error // why records with it cannot be read
	size   int
	used   uint64
}

// missing says why an id is not known, and until when the registry is not asked again. It may
// know the id later.
type missing struct {
	err   error
	until time.Time
}

// New makes a Registry. It does not connect.
func New(c Config, log *slog.Logger) *Registry {
	return &Registry{client: newClient(c), log: log, known: map[uint32]*known{}, missing: map[uint32]missing{}}
}

// Schema implements decode.Schemas.
func (r *Registry) Schema(id uint32) (*schema.Schema, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[id]
	if k == nil {
		if m, ok := r.missing[id]; ok {
			return nil, m.err
		}
		return nil, &sources.Temporary{Err: fmt.Errorf("schema %d of registry %s is not kept any more: the records name too many ids", id, r.client.config.URL)}
	}
	r.use(k)
	return k.schema, k.err
}

func (r *Registry) use(k *known) {
	r.clock++
	k.used = r.clock
}

// Learn returns when the schema of the id is known, or that there is none.
func (r *Registry) Learn(ctx context.Context, id uint32) error {
	_, err := r.learn(ctx, id)
	return err
}

// learn is Learn. isUnknown says that the registry was asked just now, and does not know the
// id.
func (r *Registry) learn(ctx context.Context, id uint32) (isUnknown bool, err error) {
	if r.has(id, time.Now()) {
		return false, nil
	}
	// If this caller gives up, others that wait for the same id still get it.
	done := r.flights.DoChan(fmt.Sprint(id), func() (any, error) { return r.ask(context.WithoutCancel(ctx), id) })
	select {
	case res := <-done:
		isUnknown, _ = res.Val.(bool)
		return isUnknown, res.Err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// has reports whether the registry need not be asked for an id now.
func (r *Registry) has(id uint32, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[id]; k != nil {
		r.use(k)
		return true
	}
	m, ok := r.missing[id]
	return ok && now.Before(m.until)
}

// ask asks the registry, unless another question for this id has just ended.
func (r *Registry) ask(ctx context.Context, id uint32) (isUnknown bool, err error) {
	if r.has(id, time.Now()) {
		return false, nil
	}
	s, size, err := r.fetch(ctx, id)
	if _, isUnknown = errors.AsType[*unknown](err); err != nil && !isUnknown {
		if _, isBad := errors.AsType[*unreadable](err); !isBad {
			return false, r.noAnswer(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = 0
	if isUnknown {
		r.miss(id, missing{err: err, until: time.Now().Add(askAgainIn)})
		return true, nil
	}
	delete(r.missing, id)
	r.keep(id, &known{schema: s, err: err, size: size})
	return false, nil
}

// miss notes that an id is not known. If there is no room, it forgets another one, which is then
// asked for again.
func (r *Registry) miss(id uint32, m missing) {
	now := time.Now()
	if len(r.missing) >= maxMissing && now.Sub(r.swept) > askAgainIn {
		r.swept = now
		for id, m := range r.missing {
			if now.After(m.until) {
				delete(r.missing, id)
			}
		}
	}
	r.missing[id] = m
	for other := range r.missing {
		if len(r.missing) <= maxMissing {
			break
		}
		if other != id {
			delete(r.missing, other)
		}
	}
}

// noAnswer sets the time to wait in an error that allows another try.
func (r *Registry) noAnswer(err error) error {
	t, ok := errors.AsType[*sources.Temporary](err)
	if !ok {
		return err
	}
	r.mu.Lock()
	wait := firstBackoff << min(r.failed, 16)
	r.failed++
	first := r.failed == 1
	r.mu.Unlock()
	if first {
		r.log.Warn("the schema registry does not answer; records that need it wait", "error", t.Err)
	}
	return &sources.Temporary{Err: t.Err, Backoff: min(wait, mostBackoff)}
}

// keep stores k. It makes room by forgetting the schemas that were not used for the longest
// time.
func (r *Registry) keep(id uint32, k *known) {
	if old := r.known[id]; old != nil {
		r.bytes -= old.size
	}
	r.use(k)
	r.known[id] = k
	r.bytes += k.size
	for len(r.known) > maxKnown || r.bytes > maxBytes && len(r.known) > 1 {
		oldest, least := id, k.used
		for other, o := range r.known {
			if o.used < least {
				oldest, least = other, o.used
			}
		}
		if oldest == id {
			return
		}
		r.bytes -= r.known[oldest].size
		delete(r.known, oldest)
	}
}
