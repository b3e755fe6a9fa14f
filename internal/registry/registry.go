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
	askAgainIn = 30 * time.Second
)

// Registry knows the schemas of one registry. It is safe for concurrent use.
type Registry struct {
	client  *client
	log     *slog.Logger
	flights singleflight.Group

	mu     sync.Mutex
	known  map[uint32]*known
	bytes  int
	clock  uint64 // counts uses
	failed int    // requests in a row that the registry did not answer
}

// known is what is known of an id.
type known struct {
	schema *schema.Schema
	err    error     // why records with it cannot be read
	until  time.Time // of an id that the registry does not know: it may learn it; zero: for good
	size   int
	used   uint64
}

// New makes a Registry. It does not connect.
func New(c Config, log *slog.Logger) *Registry {
	return &Registry{client: newClient(c), log: log, known: map[uint32]*known{}}
}

// Schema implements decode.Schemas.
func (r *Registry) Schema(id uint32) (*schema.Schema, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[id]
	if k == nil {
		return nil, &sources.Temporary{Err: fmt.Errorf("schema %d of registry %s is not kept any more: the records name more than %d schemas", id, r.client.config.URL, maxKnown)}
	}
	r.use(k)
	return k.schema, k.err
}

func (r *Registry) use(k *known) {
	r.clock++
	k.used = r.clock
}

// Learn returns when what there is to know of the id is known.
func (r *Registry) Learn(ctx context.Context, id uint32) error {
	r.mu.Lock()
	k := r.known[id]
	if k != nil && (k.until.IsZero() || time.Now().Before(k.until)) {
		r.use(k)
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	// Others that wait for the same id do not lose it if this one leaves.
	done := r.flights.DoChan(fmt.Sprint(id), func() (any, error) { return nil, r.ask(context.WithoutCancel(ctx), id) })
	select {
	case res := <-done:
		return res.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Registry) ask(ctx context.Context, id uint32) error {
	s, size, err := r.fetch(ctx, id)
	k := &known{schema: s, err: err, size: size}
	if err != nil {
		_, isNo := errors.AsType[*unknown](err)
		_, isBad := errors.AsType[*unreadable](err)
		switch {
		case isNo:
			k.err, k.until = err, time.Now().Add(askAgainIn)
		case !isBad:
			return r.noAnswer(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = 0
	r.keep(id, k)
	return nil
}

// noAnswer gives an error that asks for another try its time.
func (r *Registry) noAnswer(err error) error {
	t, ok := errors.AsType[*sources.Temporary](err)
	if !ok {
		return err
	}
	r.mu.Lock()
	wait := firstBackof << min(r.failed, 16)
	r.failed++
	first := r.failed == 1
	r.mu.Unlock()
	if first {
		r.log.Warn("the schema registry does not answer; records that need it wait", "error", t.Err)
	}
	return &sources.Temporary{Err: t.Err, Backoff: min(wait, mostBackoff)}
}

// keep makes room for k by forgetting what was not used for longest.
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
