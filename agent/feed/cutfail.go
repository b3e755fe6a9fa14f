package feed

import (
	"errors"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
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
	p := l.grant.Pieces[c.chunk.piece]
	at := p.OrderStart + c.chunk.batch.Recs[c.at].Offset - p.Start
	c.fail(l, at, c.chunk.piece, err)
}

// fail gives the lease back from at on, and ends the stream if the failure is permanent.
// For data that the source has lost, the master decides: it stops the dataset, and the
// stream hears of that, or it grants the records after the loss.
func (c *cutter) fail(l *lease, at int64, piece int, err error) {
	st, srv := c.st, c.st.t.srv
	f := faultOf(st.ds, l.grant.Pieces[piece].Name, err)
	srv.cfg.Logger.Error("a lease cannot be read on", "dataset", st.ds.Name, "segment", l.grant.Pieces[piece].Name,
		"lease", l.token.String(), "at", at, "kind", f.kind, "error", f.message)
	if f.kind == "decode" {
		srv.cfg.Metrics.decodeErrors(f.field, 1)
		st.t.decodeErrors(1, f.field)
	}
	c.drop(c.rd)
	st.mu.Lock()
	l.dry = true
	tail, again := l.cut, st.recut
	st.mu.Unlock()
	srv.cfg.Desk.Do(&hold.Failed{Lease: l.id, At: at, Permanent: f.permanent, Kind: f.kind, Message: f.message, Lost: f.lost})
	if !again { // else it is read again, up to there
		srv.cfg.Desk.Do(&hold.Exhausted{Lease: l.id, Tail: tail}) // positions before it without a record stay with this lease
	}
	if f.permanent && f.lost == nil {
		c.over = true
		c.stopAhead()
		st.t.out.send(frame.TypeError, st.id.Number, &frame.Error{Code: frame.CodeFailed, Message: f.message})
	}
}

// tellErrors reports how many values were replaced by defaults since its last call.
func (c *cutter) tellErrors() {
	for _, d := range c.decs {
		for _, e := range d.Errors() {
			key := e.Column
			if n := e.Count - c.errs[key]; e.Count > c.errs[key] {
				c.errs[key] = e.Count
				c.st.t.srv.cfg.Metrics.decodeErrors(e.Column, n)
				c.st.t.decodeErrors(n, e.Column)
			}
		}
	}
}
