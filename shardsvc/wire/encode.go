package wire

import (
	"strings"
	"unicode/utf8"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Protocol is the version of the session's protocol that this master speaks.
const Protocol = 1

// Encoder turns one reply into one field of a MasterMessage. Concatenated fields are
// one message; Order says which fields may be concatenated. Grants and acks come with
// every batch and are written by hand. Generated code writes the rest.
type Encoder struct {
	Job, Model, Version string
	TTL                 uint32 // ms

	field []byte // what Encode returned last; reused
	body  []byte
	sub   []byte
}

// Encode returns the field, which is valid until the next call. It leaves out the body
// of a cut: a reply with a body is a message of its own (CutReply). A ReplyClose ends
// the stream and is never encoded.
func (e *Encoder) Encode(r *shardsvc.Reply, pieces []shardsvc.Piece) []byte {
	switch r.Kind {
	case shardsvc.ReplyAck:
		return e.ack(r)
	case shardsvc.ReplyGrant:
		return e.grant(r, pieces[r.PieceLo:r.PieceHi])
	}
	return e.rare(r)
}

func (e *Encoder) ack(r *shardsvc.Reply) []byte {
	b := e.token(e.body[:0], 1, r.Token)
	b = varint(b, 2, uint64(r.Prefix))
	b = varint(b, 3, uint64(r.Code))
	b = text(b, 4, r.Reason)
	return e.finish(5, b)
}

func (e *Encoder) grant(r *shardsvc.Reply, pieces []shardsvc.Piece) []byte {
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
	b = varint(b, 13, suspicion(r.Suspicion))
	if r.Backfill {
		b = varint(b, 14, 1)
	}
	if r.Leads {
		b = protowire.AppendTag(b, 15, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(r.At))
	}
	return e.finish(10, b)
}

func suspicion(s shardsvc.Suspicion) uint64 {
	switch s {
	case shardsvc.NoSuspicion:
		return uint64(headracev1.Grant_NONE)
	case shardsvc.Convicted:
		return uint64(headracev1.Grant_EXCLUDE)
	}
	return uint64(headracev1.Grant_SINGLY)
}

func (e *Encoder) finish(num protowire.Number, body []byte) []byte {
	e.body = body
	e.field = protowire.AppendTag(e.field[:0], num, protowire.BytesType)
	e.field = protowire.AppendBytes(e.field, body)
	return e.field
}

func (e *Encoder) token(b []byte, num protowire.Number, t shardsvc.Token) []byte {
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
	return protowire.AppendString(b, Valid(s))
}

// Valid returns s as valid UTF-8, which a string of a protocol buffer must be. The name
// of a file may be any bytes.
func Valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// rare encodes the replies that come now and then. A ReplyHeld becomes a HelloReply with
// one entry: a reader of protocol buffers merges the HelloReplies of a message.
func (e *Encoder) rare(r *shardsvc.Reply) []byte {
	m := &headracev1.MasterMessage{}
	r.Reason = Valid(r.Reason)
	switch r.Kind {
	case shardsvc.ReplyHello:
		m.Term = r.Term
		m.Hello = &headracev1.HelloReply{Protocol: Protocol, Job: e.Job, Model: e.Model, Term: r.Term, Epoch: r.Epoch,
			SessionTtlMs: e.TTL, Master: e.Version}
	case shardsvc.ReplyHeld:
		m.Hello = &headracev1.HelloReply{Held: []*headracev1.HeldReply{{Was: TokenOf(r.Token), Token: TokenOf(r.Token),
			Refused: r.Refused, Reason: r.Reason, Prefix: r.Prefix, LeaseEnd: r.End}}}
	case shardsvc.ReplyJoin:
		m.Joins = []*headracev1.JoinReply{{Worker: r.Worker, Refused: r.Refused, Reason: r.Reason, Generation: r.Generation,
			Epoch: r.Epoch, LastStep: r.Step, PendingAgain: r.Units, Again: TallyOf(r.Again), Resume: headracev1.Join_Resume(r.Resume), Refusal: headracev1.JoinReply_Refusal(r.Join)}}
	case shardsvc.ReplySteal:
		m.StealAsks = []*headracev1.StealAsk{{Token: TokenOf(r.Token), At: r.At}}
	case shardsvc.ReplyRevoke:
		m.Revokes = []*headracev1.Revoke{{Token: TokenOf(r.Token), Reason: r.Reason}}
	case shardsvc.ReplyEnd:
		m.Ends = []*headracev1.EndWorker{{Worker: r.Worker, Reason: r.Reason}}
	case shardsvc.ReplyFence:
		m.Fences = []*headracev1.Fence{{Worker: r.Worker, Reason: r.Reason}}
	case shardsvc.ReplyStanding:
		m.Standings = []*headracev1.Standing{{Request: r.Request, Worker: r.Worker, Dataset: r.Dataset,
			State: headracev1.Standing_State(r.State), Reason: r.Reason}}
	case shardsvc.ReplyCut:
		m.CutReplies = []*headracev1.CutReply{CutReply(r)}
	case shardsvc.ReplyRound:
		m.Rounds = []*headracev1.RoundDecision{{Worker: r.Worker, Dataset: r.Dataset, Series: uint32(r.Request), Through: r.Round.Through,
			Last: r.Round.Last, Close: r.Round.Close, Over: Valid(r.Round.Over), Rows: r.Round.Rows, Virtual: r.Round.Virtual}}
	case shardsvc.ReplyPause:
		m.PauseYields = []*headracev1.PauseYields{{Worker: r.Worker, Cut: r.Cut.Cut, On: !r.Refused, Reason: r.Reason}}
	}
	field, err := proto.MarshalOptions{}.MarshalAppend(e.field[:0], m)
	if err != nil {
		panic("wire: a reply of valid strings does not marshal: " + err.Error())
	}
	e.field = field
	return field
}

// TokenOf converts a token to its message.
func TokenOf(t shardsvc.Token) *headracev1.Token {
	return &headracev1.Token{Epoch: t.Epoch, Term: t.Term, Sequence: t.Sequence}
}

// CutReply converts the answer to a call, without its body.
func CutReply(r *shardsvc.Reply) *headracev1.CutReply {
	return &headracev1.CutReply{Worker: r.Worker, Id: r.Request, Code: headracev1.CutReply_Code(r.Cut.Code), Reason: Valid(r.Reason),
		Cut: r.Cut.Cut, Step: r.Step, Path: Valid(r.Cut.Path), Again: r.Units, Epoch: r.Epoch, AgainTally: TallyOf(r.Again),
		Refusal: headracev1.CutReply_Refusal(r.Cut.Why)}
}

// TallyOf converts a tally to its message; nil stays nil.
func TallyOf(t *cut.Tally) *headracev1.Tally {
	if t == nil {
		return nil
	}
	return &headracev1.Tally{Rows: t.Rows, Oldest: t.Oldest, Newest: t.Newest, Untold: t.Untold}
}
