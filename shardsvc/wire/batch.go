package wire

import (
	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Batch gathers the replies of one batch to one session into messages. Its messages have
// no size limit, so only the simulation and the benchmarks use it; the master has an
// outbox.
type Batch struct {
	msgs  [][]byte
	order Order // of the last message
	alone bool  // the last message takes nothing more
}

// Add encodes a reply.
func (b *Batch) Add(e *Encoder, r *shardsvc.Reply, pieces []shardsvc.Piece) {
	if len(b.msgs) == 0 || b.alone || !b.order.Takes(r.Kind) {
		b.msgs, b.order, b.alone = append(b.msgs, nil), Order{}, false
	}
	last := &b.msgs[len(b.msgs)-1]
	*last = append(*last, e.Encode(r, pieces)...)
	b.order.Add(r.Kind)
}

// AddCut adds an answer with the text of its cut, as a message of its own.
func (b *Batch) AddCut(r *shardsvc.Reply, text []byte) {
	answer := CutReply(r)
	answer.Body = text
	b.msgs, b.alone = append(b.msgs, Marshal(&headracev1.MasterMessage{CutReplies: []*headracev1.CutReply{answer}})), true
}

// Messages returns the messages to send. An echo other than 0 goes into the first one; if
// there is none, it makes one.
func (b *Batch) Messages(echo int64) [][]byte {
	if echo == 0 {
		return b.msgs
	}
	if len(b.msgs) == 0 {
		b.msgs = append(b.msgs, nil)
	}
	b.msgs[0] = protowire.AppendTag(b.msgs[0], 2, protowire.VarintType)
	b.msgs[0] = protowire.AppendVarint(b.msgs[0], uint64(echo))
	return b.msgs
}

// Marshal encodes a message whose texts are valid.
func Marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic("wire: a message of valid strings does not marshal: " + err.Error())
	}
	return b
}
