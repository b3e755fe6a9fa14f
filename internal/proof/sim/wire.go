package sim

import (
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/protobuf/proto"
)

// Agents and masters exchange the same bytes as over gRPC. The master's side is shardsvc/wire, as in
// shardsvc/serve.

const jobName = "sim"

// fromMaster is a message as the agent reads it.
func (w *World) fromMaster(b []byte) *pb.MasterMessage {
	m := &pb.MasterMessage{}
	if err := proto.Unmarshal(b, m); err != nil {
		w.fail("an agent cannot read the master's message: %v", err)
	}
	return m
}

// fromAgent is a message as the master's core gets it.
func (m *master) fromAgent(s shardsvc.Session, b []byte) *wire.Message {
	in := &wire.Message{}
	if err := m.decoder.Decode(b, in); err != nil {
		m.w.fail("the master cannot read an agent's message: %v", err)
	}
	for _, r := range in.Refusals {
		m.w.fail("the master refuses a call before the core sees it: %s", r.Reply(s).Reason)
	}
	in.Event.Session = s
	return in
}

// outbox gathers the replies of one batch for one session.
type outbox struct {
	l     *link
	batch wire.Batch
	echo  int64
	close string
}

func (o *outbox) add(m *master, r *shardsvc.Reply, pieces []shardsvc.Piece) {
	switch {
	case r.Kind == shardsvc.ReplyClose:
		o.close = r.Reason
	case r.Kind == shardsvc.ReplyCut && r.Cut.Body != nil:
		o.batch.AddCut(r, m.w.bodyOf(r.Cut.Body))
	default:
		o.batch.Add(&m.encoder, r, pieces)
	}
}

// bodyOf is the encoded cut. It is encoded once.
func (w *World) bodyOf(c *cut.Cut) []byte {
	if text, ok := w.texts[c]; ok {
		return text
	}
	text, err := c.EncodeJSON()
	if err != nil {
		w.fail("cut %v cannot be written down: %v", c.ID, err)
	}
	w.texts[c] = text
	return text
}

// body is the cut of a text, as a trainer or the writer of a manifest reads it. The same text gives the same
// value.
func (w *World) body(text []byte) *cut.Cut {
	if len(text) == 0 {
		return nil
	}
	if c, ok := w.cuts[string(text)]; ok {
		return c
	}
	c, err := cut.ParseJSON(text)
	if err != nil {
		w.fail("a cut cannot be read: %v\n%s", err, text)
		return &cut.Cut{Rank: cut.Group}
	}
	w.cuts[string(text)], w.texts[c] = c, text
	return c
}
