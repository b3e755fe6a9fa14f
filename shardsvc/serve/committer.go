package serve

import (
	"errors"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/grpc/codes"
)

// committer makes one batch durable at a time, and then sends the batch's replies.
type committer struct {
	s    *Server
	work chan *buffer   // from the loop; closed when there is no more
	done chan committed // to the loop
	enc  wire.Encoder

	touched []*stream
}

type committed struct {
	buffer *buffer
	err    error // the store failed: nothing of the batch was answered
}

func newCommitter(s *Server) *committer {
	return &committer{s: s, work: make(chan *buffer, 1), done: make(chan committed, 1),
		enc: wire.Encoder{Job: s.cfg.Job, Model: s.cfg.Model, Version: s.cfg.Version, TTL: uint32(s.cfg.TTL.Milliseconds())}}
}

func (c *committer) run() {
	for b := range c.work {
		if err := c.commit(b.fx.Puts); err != nil {
			c.done <- committed{err: err}
			return
		}
		c.answer(b)
		c.done <- committed{buffer: b}
	}
}

func (c *committer) commit(puts []shardsvc.Put) error {
	if len(puts) == 0 {
		return nil
	}
	began := time.Now()
	err := c.s.cfg.Store.Commit(puts)
	c.s.metrics.commits.Observe(time.Since(began).Seconds())
	return err
}

// answer hands out the results of a durable batch: replies and echoes to their streams,
// results to waiting calls, reports to log and counters.
func (c *committer) answer(b *buffer) {
	var st *stream
	for i := range b.fx.Replies {
		r := &b.fx.Replies[i]
		if st == nil || st.session != r.To {
			if st = c.s.sessions.get(r.To); st == nil {
				continue // the stream is gone; its agent connects again, asserts its leases and asks again
			}
		}
		if r.Kind == shardsvc.ReplyClose {
			st.close(statusOf(closeCode(r.Close), errors.New(r.Reason), detail{}))
			continue
		}
		c.touch(st)
		if r.Kind == shardsvc.ReplyCut && r.Cut.Body != nil {
			st.out.addCut(&cutReply{wire.CutReply(r), r.Cut.Body, &c.s.bodies})
			continue
		}
		st.out.add(r.Kind, c.enc.Encode(r, b.fx.Pieces))
	}
	for _, e := range b.echoes {
		c.touch(e.st)
		e.st.out.batchEcho = e.sentAt
	}
	for _, st := range c.touched {
		if !st.out.publish() {
			st.close(statusOf(codes.ResourceExhausted, errOutboxFull, detail{Hint: "the agent reads its session too slowly; it may connect again and assert what it holds"}))
		}
	}
	clear(c.touched)
	c.touched = c.touched[:0]
	for _, a := range b.calls {
		a.c.done <- a.err
	}
	c.s.report(b.fx.Reports)
}

// touch notes a stream that gets something from this batch.
func (c *committer) touch(st *stream) {
	if !st.out.touched {
		st.out.touched = true
		c.touched = append(c.touched, st)
	}
}

// closeCode tells an agent what to do after its session was closed. ALREADY_EXISTS: another
// process took its place, so it must end. ABORTED: its session expired, and it may connect
// again.
func closeCode(why shardsvc.CloseCode) codes.Code {
	if why == shardsvc.CloseReplaced {
		return codes.AlreadyExists
	}
	return codes.Aborted
}
