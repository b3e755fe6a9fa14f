package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// entryKind says what kind of entry it is that gave no message.
type entryKind uint8

const (
	ordinary    entryKind = iota // a message, a batch of them, or a chunk of one
	hole                         // no record: a marker, or an aborted message
	uncommitted                  // part of an open transaction, or after one
)

// entryInfo is the broker's answer about one entry.
type entryInfo struct {
	kind   entryKind
	hidden bool   // it is one of an open transaction, or comes after one: nobody gets it
	uuid   string // of a message in chunks
	chunk  int

	published string // as the admin API writes it
}

// entry asks the broker what an entry is, without its payload.
func (s *Source) entry(ctx context.Context, p partition, ledger, entry int64) (entryInfo, error) {
	res, err := s.admin.do(ctx, http.MethodHead, fmt.Sprintf("%s/ledger/%d/entry/%d", adminPath(p.topic), ledger, entry), nil)
	if err != nil {
		return entryInfo{}, err
	}
	_ = res.Body.Close()
	h := res.Header
	info := entryInfo{uuid: h.Get("X-Pulsar-uuid"), published: h.Get("X-Pulsar-publish-time")}
	info.chunk, _ = strconv.Atoi(h.Get("X-Pulsar-chunk-id"))
	info.hidden = h.Get("X-Pulsar-txn-uncommitted") == "true"
	switch {
	case h.Get("X-Pulsar-marker-type") != "", h.Get("X-Pulsar-txn-aborted") == "true":
		info.kind = hole
	case info.hidden:
		info.kind = uncommitted
	}
	return info, nil
}

// explain finds out why a later entry came instead of the one at c.at. If the entry at c.at
// has no record, it moves c.at to the next entry. Otherwise it returns an error.
func (c *cursor) explain(ctx context.Context) error {
	if c.rd.cur.Ledger > c.ledger {
		err := c.written(ctx) // perhaps the ledger has ended
		if errors.Is(err, errLater) {
			return c.rest(ctx)
		}
		if err != nil {
			return err
		}
	}
	info, err := c.s.entry(ctx, c.p, c.ledger, entryOf(c.at))
	if isNotFound(err) {
		return c.unknown(ctx)
	}
	if err != nil {
		return err
	}
	switch info.kind {
	case hole:
		c.moveTo(at(entryOf(c.at)+1, 0))
		return nil
	case uncommitted:
		c.drop() // the later entry should not have come
		return temporary(fmt.Errorf("%s: entry %d:%d belongs to a transaction that is open, and a later one came", c.p, c.ledger, entryOf(c.at)))
	}
	return c.missing(fmt.Errorf("entry %d:%d is there and did not come", c.ledger, entryOf(c.at)))
}

// ask finds out why nothing comes. It stops when an entry comes: hundreds of cursors may ask
// at once, and a busy broker takes seconds to answer them.
func (c *cursor) ask(ctx context.Context) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	came := false
	var wait sync.WaitGroup
	ready := c.rd.wire.Ready()
	wait.Go(func() {
		select {
		case <-ready:
			came = true
			stop()
		case <-asking.Done():
		}
	})
	err := c.asked(asking)
	stop()
	if wait.Wait(); came {
		return nil // peek takes what came
	}
	return err
}

func (c *cursor) asked(ctx context.Context) error {
	select {
	case c.s.asks <- struct{}{}:
		defer func() { <-c.s.asks }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.opening {
		return c.atHead(ctx)
	}
	return c.look(ctx)
}

// atHead finds out early whether a live cursor that was opened waits at the head. A stream
// asks for another partition as soon as all of its cursors wait there.
func (c *cursor) atHead(ctx context.Context) error {
	c.opening, c.quiet = false, max(quietFirst, c.share()/2)
	if !c.checked {
		if err := c.sameTopic(ctx); err != nil {
			return err
		}
	}
	err := c.found(ctx)
	if errors.Is(err, errLater) {
		return nil
	}
	if err == nil {
		c.quiet = quietFirst // it is there, and is on its way
	}
	return err
}

// look finds out why nothing comes. If the entry at c.at is not written yet, nothing is
// wrong. It asks for the entry only if it exists, because a broker that is asked for a
// later one fails and writes a page to its log.
func (c *cursor) look(ctx context.Context) error {
	err := c.written(ctx)
	if errors.Is(err, errLater) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := c.s.entry(ctx, c.p, c.ledger, entryOf(c.at))
	if isNotFound(err) {
		return c.unknown(ctx)
	}
	if err != nil {
		return err
	}
	c.quiet = quietFirst // something is there that does not come by itself
	switch {
	case info.kind == hole:
		c.seen(at(entryOf(c.at)+1, 0))
		c.moveTo(at(entryOf(c.at)+1, 0))
	case info.kind == uncommitted:
	case c.coming():
	default:
		if c.real++; c.real >= realTries {
			c.real = 0
			return c.silent(ctx, fmt.Errorf("entry %d:%d is there and does not come", c.ledger, entryOf(c.at)), c.ledger, entryOf(c.at), true)
		}
	}
	return nil
}

// coming says whether the entry at c.at may be on its way: bytes have come over the connection
// since it was last looked for. Over a slow link, a large entry needs many looks, and so does one
// that comes after the entries of many other Readers. But that does not go on for ever.
func (c *cursor) coming() bool {
	before := c.bytes
	c.bytes = c.rd.wire.Received()
	return c.bytes != before && !brokers.Longer(&c.slow, c.s.tries.silence)
}

// sameTopic returns an error if the topic of this name is not the planned one any more.
func (c *cursor) sameTopic(ctx context.Context) error {
	created, err := c.s.madeAt(ctx, c.p.topic)
	if err == nil {
		if created != c.p.created {
			return madeAgain(c.p, c.name(), c.wanted(), partition{c.p.topic, created})
		}
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	// For a missing topic, some paths of the admin API answer 404 and others 500.
	var stats struct{ State string }
	if there := c.s.admin.get(ctx, adminPath(c.p.topic)+"/internalStats", &stats); isNotFound(there) {
		return deleted(c.name(), c.wanted())
	}
	return err
}

// rest waits for c.quiet, which grows until a message comes.
func (c *cursor) rest(ctx context.Context) error {
	quiet := c.quiet
	c.quieter()
	return sleep(ctx, quiet)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wanted returns the rest of the range. In a live partition it ends at the head that was
// seen, because a lease may end ahead of head.
func (c *cursor) wanted() sources.Range {
	r := c.r
	r.Start = max(c.at, r.Start)
	if c.s.o.live() {
		r.End = min(r.End, max(c.head, r.Start))
	}
	return r
}

// unknown returns the error for an entry that exists, but that the broker does not find.
func (c *cursor) unknown(ctx context.Context) error {
	if err := c.written(ctx); err != nil {
		return err
	}
	return c.silent(ctx, fmt.Errorf("the broker does not know entry %d:%d, which its ledger has", c.ledger, entryOf(c.at)), c.ledger, entryOf(c.at), false)
}

// written returns nil if the entry at c.at exists. It returns errLater if the entry is not
// written yet, and *sources.Truncated if it was deleted. At the end of a ledger after which
// Pulsar has begun another one, it returns errLater too: only the master ends the range.
func (c *cursor) written(ctx context.Context) error {
	if err := c.sameTopic(ctx); err != nil {
		return err
	}
	return c.found(ctx)
}

// found is written without the check that the topic is still the planned one.
func (c *cursor) found(ctx context.Context) error {
	l, err := c.s.layoutOf(ctx, c.p)
	if err != nil {
		return err
	}
	g, there := l.find(c.ledger)
	if !there {
		lost := c.wanted()
		return &sources.Truncated{Lost: lost, Name: c.name(),
			Err: fmt.Errorf("ledger %d was deleted by Pulsar (retention, TTL or a backlog quota of the namespace); the first is %d now", c.ledger, l.Ledgers[0].Ledger)}
	}
	end := at(g.Entries, 0)
	open := g.Ledger == l.open().Ledger
	switch {
	case c.at < end:
		return nil
	case c.at == end && (open || c.s.o.live()):
		c.seen(end)
		return errLater
	case entryOf(c.at) == g.Entries && open:
		return errLater
	}
	return &sources.Diverged{Range: c.wanted(), Name: c.name(), Head: end}
}
