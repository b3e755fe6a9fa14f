package serve

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// The codec has the name of gRPC's own, which it falls back to, so that every
// server and client of the process has it without being told.
func init() {
	encoding.RegisterCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// codec is Protocol Buffers, except that a session's messages go straight
// between bytes and the core's structs. On the wire there is no difference.
type codec struct{ encoding.CodecV2 }

func (codec) Name() string { return proto.Name }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*rawMessage); ok {
		return mem.BufferSlice{mem.NewBuffer(m.buf, &messages)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*inbound)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if err := in.st.s.decoder.Decode(buf.ReadOnlyData(), &in.Message); err != nil {
		return fmt.Errorf("agent's message: %w", err)
	}
	return nil
}

// rawMessage is an encoded MasterMessage in a buffer of messages. Sending it
// gives the buffer away.
type rawMessage struct{ buf *[]byte }
