package serve

import (
	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/protobuf/proto"
)

// cutReply is an answer with a body. The sender encodes it, because a body may have
// megabytes and would hold up the loop or the committer.
type cutReply struct {
	reply *headracev1.CutReply
	cut   *cut.Cut
	texts *bodies
}

// encode returns the whole message. If the cut cannot be written as JSON, the answer
// becomes a refusal with the reason.
func (c *cutReply) encode() *[]byte {
	body, err := c.texts.of(c.cut)
	if err != nil {
		c.reply.Code, c.reply.Reason = headracev1.CutReply_REFUSED, "the master cannot write the cut down: "+wire.Valid(err.Error())
	}
	c.reply.Body = body
	buf := messages.get()
	*buf, err = proto.MarshalOptions{}.MarshalAppend(*buf, &headracev1.MasterMessage{CutReplies: []*headracev1.CutReply{c.reply}})
	if err != nil {
		panic("serve: a reply of valid strings does not marshal: " + err.Error())
	}
	return buf
}
