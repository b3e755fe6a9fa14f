package pulsar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/headrace/headrace/sources"
)

// A producer may send a large message in chunks, one entry each. Entries of other messages
// may lie between them. The position of such a message is that of its last chunk, where
// Pulsar's consumers get it too. A cursor that begins between the chunks looks back for the
// first one.

const lookBackMost = 10_000 // entries

// assemble puts the message that ends with the chunk at c.at into the batch.
func (c *cursor) assemble(ctx context.Context, last entryInfo, b *sources.Batch) error {
	entry := entryOf(c.at)
	if c.at > at(entry, 0) { // the range begins after it
		c.moveTo(at(entry+1, 0))
		return nil
	}
	ledger, first, err := c.firstChunk(ctx, last)
	if err != nil {
		return err
	}
	rd, err := c.s.open(ctx, c.p, ledger, at(first, 0), permitsFirst)
	if err != nil {
		return err
	}
	defer rd.close()
	ctx, cancel := context.WithTimeout(ctx, 2*operationWithin)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return temporary(fmt.Errorf("%s: the message in chunks from %d:%d to %d:%d does not come: %w", c.p, ledger, first, c.ledger, entry, ctx.Err()))
		case m, ok := <-rd.messages:
			if !ok {
				return temporary(fmt.Errorf("%s: the connection's Reader has ended", c.p))
			}
			id := m.ID()
			if id.LedgerID() < c.ledger || id.LedgerID() == c.ledger && id.EntryID() < entry {
				continue
			}
			if id.LedgerID() != c.ledger || id.EntryID() != entry {
				return c.missing(fmt.Errorf("the message in chunks from %d:%d to %d:%d does not come", ledger, first, c.ledger, entry))
			}
			if m.GetEncryptionContext() != nil {
				return c.malformed("the message is encrypted, and Headrace has no keys: let its producer write it plain, or read another topic")
			}
			if err := c.put(b, record{offset: c.at, behind: at(entry+1, 0), key: m.Key(), value: m.Payload(),
				properties: m.Properties(), event: m.EventTime(), published: m.PublishTime()}); err != nil {
				return err
			}
			c.moveTo(at(entry+1, 0))
			return nil
		}
	}
}

// firstChunk looks back for the first chunk of a message.
func (c *cursor) firstChunk(ctx context.Context, last entryInfo) (ledger, entry int64, err error) {
	l, err := c.s.layoutOf(ctx, c.p)
	if err != nil {
		return 0, 0, err
	}
	ledger, entry = c.ledger, entryOf(c.at)
	for range lookBackMost {
		if entry--; entry < 0 {
			before := int64(-1)
			for _, g := range l.Ledgers {
				if g.Ledger < ledger && g.Entries > 0 {
					before, entry = g.Ledger, g.Entries-1
				}
			}
			if ledger = before; ledger < 0 {
				break
			}
		}
		info, err := c.s.entry(ctx, c.p, ledger, entry)
		if isNotFound(err) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		if info.uuid == last.uuid && info.chunk == 0 {
			return ledger, entry, nil
		}
	}
	lost := c.r
	lost.Start, lost.End = c.at, min(c.r.End, at(entryOf(c.at)+1, 0))
	return 0, 0, &sources.Truncated{Lost: lost, Name: c.name(),
		Err: fmt.Errorf("the message in chunks that ends at entry %d has lost its first chunk (Pulsar has deleted it)", entryOf(c.at))}
}

// properties returns the properties of a message, from the headers of the admin API's answer.
func properties(h http.Header) map[string]string {
	all := map[string]string{}
	if text := h.Get("X-Pulsar-PROPERTY"); text != "" {
		_ = json.Unmarshal([]byte(text), &all)
	}
	for name, values := range h {
		const prefix = "X-Pulsar-Property-"
		if key, ok := strings.CutPrefix(name, prefix); ok && len(values) > 0 && key != "Total-Chunks" && key != "Chunk-Id" {
			all[key] = values[0]
		}
	}
	return all
}
