package feed

import (
	"bytes"
	"errors"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// badRecord handles a record that cannot be decoded: the one after those that were.
func (c *cutter) badRecord(l *lease, err error) {
	if errors.Is(err, decode.ErrFull) && c.w.b.Rows() >= c.st.rows {
		c.seal(c.w.b.Rows() / c.st.rows * c.st.rows)
		return
	}
	if errors.Is(err, decode.ErrFull) { // the trainer asks for too much; the data is good
		c.over = true
		c.st.t.out.send(frame.TypeError, c.st.id.Number, invalid(err.Error(), ""))
		return
	}
	c.tellErrors()
	if bad, ok := errors.AsType[*decode.Error](err); ok && c.st.ds.Spec.Skips() {
		srv := c.st.t.srv
		srv.cfg.Metrics.decodeErrors(bad.Column, 1)
		c.leaveOut(l, bad.Column, "decode", bad.Error())
		return
	}
	p := l.grant.Pieces[c.chunk.piece]
	at := p.OrderStart + c.chunk.batch.Rec(c.at).Offset - p.Start
	c.fail(l, at, c.chunk.piece, err)
}

// Bytes of a bad record that go to the master.
const (
	badValueBytes = 64 << 10
	badKeyBytes   = 4 << 10
)

// formJSON says that the bytes are a row of columns, written as JSON.
const formJSON = "json"

// leaveOut reports the next record as bad to the master, which excludes it and grants the
// rest of the lease again.
func (c *cutter) leaveOut(l *lease, column, kind, reason string) {
	rec, arena := c.chunk.batch.Rec(c.at), c.chunk.batch.Arena
	value, key := arena[rec.Value[0]:rec.Value[1]], arena[rec.Key[0]:rec.Key[1]]
	bad := &pb.BadRecord{Start: rec.Offset, End: rec.Next, Column: column, Kind: kind, Reason: reason,
		Value: bytes.Clone(value[:min(len(value), badValueBytes)]), Key: bytes.Clone(key[:min(len(key), badKeyBytes)]), Size: int64(len(value))}
	if len(arena) == 0 && len(c.chunk.batch.Columns) > 0 { // a row of columns has no bytes of its own
		bad.Value, bad.Size = c.dec.RowJSON(c.chunk.batch, c.at, badValueBytes)
		bad.Form = formJSON
	}
	c.exclude(l, bad)
}

// leaveOutAlone is leaveOut for a record that the source could not read.
func (c *cutter) leaveOutAlone(l *lease, bad sources.Alone, reason string) {
	c.st.mu.Lock()
	end := l.end
	c.st.mu.Unlock()
	if rng, _, any := l.span(c.chunk.piece, l.read, end); !any || bad.Start >= rng.End { // the tail was stolen
		c.skipChunk(l)
		return
	}
	c.st.t.srv.cfg.Metrics.decodeErrors("", 1)
	c.exclude(l, recordAlone(bad, reason))
}

// recordAlone is what the master keeps of a record that the source could not read.
func recordAlone(bad sources.Alone, reason string) *pb.BadRecord {
	r := &pb.BadRecord{Start: bad.Start, End: bad.Next, Kind: pb.KindDecode, Reason: reason,
		Value: bad.Value[:min(len(bad.Value), badValueBytes)], Size: bad.Size}
	if len(r.Value) == 0 && r.Size > 0 {
		r.Size = -1 // a row of columns that was not read
	}
	return r
}

func (c *cutter) exclude(l *lease, bad *pb.BadRecord) {
	p, st := l.grant.Pieces[c.chunk.piece], c.st
	bad.Segment = p.Segment
	st.t.srv.cfg.Logger.Warn("a record is bad and left out", "dataset", st.ds.Name, "segment", p.Name, "offset", bad.Start, "column", bad.Column, "error", bad.Reason)
	c.giveUp(l, &hold.Failed{Lease: l.id, At: p.OrderStart + bad.Start - p.Start, Kind: bad.Kind, Message: bad.Reason, Bad: []*pb.BadRecord{bad},
		Loose: st.ds.Spec.Order != "strict"})
}

// fail gives the lease back from at on, and ends the stream if the failure is permanent. If
// the source has lost data, the master decides: it grants the records after the loss, or it
// stops the dataset and tells the stream.
func (c *cutter) fail(l *lease, at int64, piece int, err error) {
	st, srv := c.st, c.st.t.srv
	f := faultOf(st.ds, l.grant.Pieces[piece].Name, err)
	srv.cfg.Logger.Error("a lease cannot be read on", "dataset", st.ds.Name, "segment", l.grant.Pieces[piece].Name,
		"lease", l.token.String(), "at", at, "kind", f.kind, "error", f.message)
	if f.kind == "decode" {
		srv.cfg.Metrics.decodeErrors(f.field, 1)
	}
	c.giveUp(l, &hold.Failed{Lease: l.id, At: at, Permanent: f.permanent, Kind: f.kind, Message: f.message, Lost: f.lost})
	if f.permanent && f.lost == nil {
		c.over = true
		c.stopAhead()
		st.t.out.send(frame.TypeError, st.id.Number, &frame.Error{Code: frame.CodeFailed, Message: f.message})
	}
}

// giveUp stops reading l, and gives back what begins at ev.At or after it.
func (c *cutter) giveUp(l *lease, ev *hold.Failed) {
	st, desk := c.st, c.st.t.srv.cfg.Desk
	c.drop(c.rd)
	st.mu.Lock()
	l.dry = true
	tail, again := l.cut, st.recut
	st.mu.Unlock()
	desk.Do(ev)
	if !again { // else the lease is read again, up to ev.At
		desk.Do(&hold.Exhausted{Lease: l.id, Tail: tail}) // this lease keeps the positions without a record before ev.At
	}
}

// tellErrors reports how many values were replaced by defaults since its last call.
func (c *cutter) tellErrors() {
	for _, d := range c.st.decs {
		for _, e := range d.Errors() {
			key := errorsOf{d, e.Column}
			if n := e.Count - c.st.errs[key]; e.Count > c.st.errs[key] {
				c.st.errs[key] = e.Count
				c.st.t.srv.cfg.Metrics.decodeErrors(e.Column, n)
			}
		}
	}
}
