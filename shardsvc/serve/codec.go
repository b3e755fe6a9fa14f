package serve

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// The codec replaces gRPC's own under the same name and falls back to it. So every server
// and client of the process uses it without an option.
func init() {
	encoding.RegisterCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// codec is Protocol Buffers. It translates a session's messages directly between bytes and
// the core's structs; the bytes are the same as those of generated code.
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
