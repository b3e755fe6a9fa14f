package serve

import (
	"sync"

	"github.com/headrace/headrace/shardsvc/wire"
)

// inbound is one AgentMessage on its way from its stream to the loop. It is reused.
type inbound struct {
	st *stream
	wire.Message
}

var inbounds = sync.Pool{New: func() any { return new(inbound) }}

func newInbound(st *stream) *inbound {
	in := inbounds.Get().(*inbound)
	in.st = st
	in.Event.Session = st.session
	return in
}

func (in *inbound) free() {
	in.st = nil
	in.Reset()
	inbounds.Put(in)
}
