package serve

import (
	"strings"
	"unicode/utf8"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// encoder turns one reply into one field of a MasterMessage. Grants and acks,
// which come with every batch, are written by hand, the rest by generated code.
type encoder struct {
	job, model, version string
	ttl                 uint32 // ms

	field []byte // the answer, reused
	body  []byte
	sub   []byte
}

// encode returns the field; it is valid until the next call.
func (e *encoder) encode(r *shardsvc.Reply, pieces []shardsvc.Piece) []byte {
	switch r.Kind {
	case shardsvc.ReplyAck:
		return e.ack(r)
	case shardsvc.ReplyGrant:
		return e.grant(r, pieces[r.PieceLo:r.PieceHi])
	}
	return e.rare(r)
}

func (e *encoder) ack(r *shardsvc.Reply) []byte {
	b := e.token(e.body[:0], 1, r.Token)
	b = varint(b, 2, uint64(r.Prefix))
	b = varint(b, 3, uint64(r.Code))
	b = text(b, 4, r.Reason)
	return e.finish(5, b)
}

func (e *encoder) grant(r *shardsvc.Reply, pieces []shardsvc.Piece) []byte {
	b := varint(e.body[:0], 1, r.Request)
	b = e.token(b, 2, r.Token)
	b = varint(b, 3, uint64(r.Worker))
	b = varint(b, 4, uint64(r.Dataset))
	b = varint(b, 5, uint64(r.Partition))
	b = text(b, 6, r.Identity)
	b = varint(b, 7, uint64(r.Pass))
	b = varint(b, 8, uint64(r.Segment))
	b = varint(b, 9, uint64(r.Start))
	b = varint(b, 10, uint64(r.End))
	b = varint(b, 11, uint64(r.Tries))
	for i := range pieces {
		p := &pieces[i]
		s := varint(e.sub[:0], 1, uint64(p.OrderStart))
		s = varint(s, 2, uint64(p.Segment))
		s = varint(s, 3, uint64(p.Start))
		s = varint(s, 4, uint64(p.End))
		if len(p.Locator) > 0 {
			s = protowire.AppendTag(s, 5, protowire.BytesType)
			s = protowire.AppendBytes(s, p.Locator)
		}
		s = text(s, 6, p.Name)
		e.sub = s
		b = protowire.AppendTag(b, 12, protowire.BytesType)
		b = protowire.AppendBytes(b, s)
	}
	return e.finish(10, b)
}

func (e *encoder) finish(num protowire.Number, body []byte) []byte {
	e.body = body
	e.field = protowire.AppendTag(e.field[:0], num, protowire.BytesType)
	e.field = protowire.AppendBytes(e.field, body)
	return e.field
}

func (e *encoder) token(b []byte, num protowire.Number, t shardsvc.Token) []byte {
	s := varint(e.sub[:0], 1, uint64(t.Epoch))
	s = varint(s, 2, uint64(t.Term))
	s = varint(s, 3, t.Sequence)
	e.sub = s
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, s)
}

func varint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func text(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, valid(s))
}

// valid: a file's name may be any bytes, a protocol buffer's string may not.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// rare encodes the replies that come now and then. A Held answer is a piece of
// the HelloReply: pieces of one message field merge.
func (e *encoder) rare(r *shardsvc.Reply) []byte {
	m := &headracev1.MasterMessage{}
	r.Reason = valid(r.Reason)
	switch r.Kind {
	case shardsvc.ReplyHello:
		m.Term = r.Term
		m.Hello = &headracev1.HelloReply{Protocol: protocolVersion, Job: e.job, Model: e.model, Term: r.Term, Epoch: r.Epoch,
			SessionTtlMs: e.ttl, Master: e.version}
	case shardsvc.ReplyHeld:
		m.Hello = &headracev1.HelloReply{Held: []*headracev1.HeldReply{{Was: wireToken(r.Was), Token: wireToken(r.Token),
			Refused: r.Refused, Reason: r.Reason, Prefix: r.Prefix, LeaseEnd: r.End}}}
	case shardsvc.ReplyJoin:
		m.Joins = []*headracev1.JoinReply{{Worker: r.Worker, Refused: r.Refused, Reason: r.Reason, Generation: r.Generation,
			Epoch: r.Epoch, LastStep: r.Step, PendingAgain: r.Units, Again: wireTally(r.Again), Resume: headracev1.Join_Resume(r.Resume)}}
	case shardsvc.ReplySteal:
		m.StealAsks = []*headracev1.StealAsk{{Token: wireToken(r.Token), At: r.At}}
	case shardsvc.ReplyRevoke:
		m.Revokes = []*headracev1.Revoke{{Token: wireToken(r.Token), Reason: r.Reason}}
	case shardsvc.ReplyEnd:
		m.Ends = []*headracev1.EndWorker{{Worker: r.Worker, Reason: r.Reason}}
	case shardsvc.ReplyFence:
		m.Fences = []*headracev1.Fence{{Worker: r.Worker, Reason: r.Reason}}
	case shardsvc.ReplyStanding:
		m.Standings = []*headracev1.Standing{{Request: r.Request, Worker: r.Worker, Dataset: r.Dataset,
			State: headracev1.Standing_State(r.State), Reason: r.Reason}}
	case shardsvc.ReplyCut:
		m.CutReplies = []*headracev1.CutReply{wireReply(r)}
	case shardsvc.ReplyHold:
		m.HoldYields = []*headracev1.HoldYields{{Worker: r.Worker, Cut: r.Cut.Cut, On: !r.Refused, Reason: r.Reason}}
	}
	field, err := proto.MarshalOptions{}.MarshalAppend(e.field[:0], m)
	if err != nil {
		panic("serve: a reply of valid strings does not marshal: " + err.Error())
	}
	e.field = field
	return field
}

func wireToken(t shardsvc.Token) *headracev1.Token {
	return &headracev1.Token{Epoch: t.Epoch, Term: t.Term, Sequence: t.Sequence}
}
