package decode

import (
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// another returns a random message.
func another(rng *rand.Rand, md protoreflect.MessageDescriptor, depth int) []byte {
	m := dynamicpb.NewMessage(md)
	populate(rng, m, depth)
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// populate fills a message with random values.
func populate(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Cardinality() != protoreflect.Required && (rng.IntN(2) == 0 || f.Message() != nil && depth == 0) {
			continue
		}
		switch {
		case f.IsList():
			for range rng.IntN(4) {
				if v := m.NewField(f).List().NewElement(); f.Message() != nil {
					populate(rng, v.Message(), depth-1)
					m.Mutable(f).List().Append(v)
				} else {
					m.Mutable(f).List().Append(scalar(rng, f))
				}
			}
		case f.IsMap():
			for range rng.IntN(3) {
				k := scalar(rng, f.MapKey()).MapKey()
				if f.MapKey().Kind() == protoreflect.StringKind {
					k = protoreflect.ValueOfString([]string{"k", "l", ""}[rng.IntN(3)]).MapKey()
				} else if f.MapKey().Kind() == protoreflect.Int32Kind {
					k = protoreflect.ValueOfInt32(int32(rng.IntN(3) - 1)).MapKey()
				}
				v := m.Mutable(f).Map().NewValue()
				if f.MapValue().Message() != nil {
					populate(rng, v.Message(), depth-1)
				} else {
					v = scalar(rng, f.MapValue())
				}
				m.Mutable(f).Map().Set(k, v)
			}
		case f.Message() != nil:
			populate(rng, m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(rng, f))
		}
	}
}

func scalar(rng *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := int64(rng.IntN(5) - 2)
	if rng.IntN(3) == 0 {
		n = int64(rng.Uint64() >> rng.IntN(64))
	}
	if f.Parent().FullName() == "google.protobuf.Timestamp" {
		n %= 1e10
	}
	text := []string{"", "a", "k", "日本", strings.Repeat("long", 50)}[rng.IntN(5)]
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum([]protoreflect.EnumNumber{0, 1, -5, 100000, 1}[rng.IntN(5)])
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) / 3)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) / 3)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	}
	return protoreflect.ValueOfBytes([]byte(text))
}

// scramble encodes a message in another way: fields in another order, some twice or not at all, packed numbers
// one by one, messages in pieces, and unknown fields in between.
func scramble(rng *rand.Rand, md protoreflect.MessageDescriptor, b []byte, depth int) []byte {
	var chunks [][]byte
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		m := protowire.ConsumeFieldValue(number, wire, b[n:])
		if n < 0 || m < 0 {
			return b
		}
		tag, value := b[:n], b[n:n+m]
		b = b[n+m:]
		f := md.Fields().ByNumber(number)
		switch {
		case wire == protowire.BytesType && f != nil && f.Message() != nil && depth < 6:
			body, _ := protowire.ConsumeBytes(value)
			if rng.IntN(3) == 0 {
				body = append(append([]byte(nil), body...), another(rng, f.Message(), 1)...)
			}
			body = scramble(rng, f.Message(), body, depth+1)
			chunks = append(chunks, protowire.AppendBytes(append([]byte(nil), tag...), body))
		case wire == protowire.StartGroupType && f != nil && f.Message() != nil:
			body, _ := protowire.ConsumeGroup(number, value)
			body = append(append([]byte(nil), tag...), scramble(rng, f.Message(), body, depth+1)...)
			chunks = append(chunks, protowire.AppendTag(body, number, protowire.EndGroupType))
		case wire == protowire.BytesType && f != nil && f.IsPacked():
			body, _ := protowire.ConsumeBytes(value)
			for len(body) > 0 {
				n := protowire.ConsumeFieldValue(number, protowire.Type(wireOf(f.Kind())), body)
				chunks = append(chunks, append(protowire.AppendTag(nil, number, wireOf(f.Kind())), body[:n]...))
				body = body[n:]
			}
		default:
			chunks = append(chunks, append(append([]byte(nil), tag...), value...))
		}
		switch rng.IntN(12) {
		case 0:
			chunks = append(chunks, chunks[len(chunks)-1])
		case 1:
			chunks = chunks[:len(chunks)-1]
		case 2:
			chunks = append(chunks, protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), 9))
		case 3:
			g := protowire.AppendVarint(protowire.AppendTag(protowire.AppendTag(nil, 777, protowire.StartGroupType), 3, protowire.VarintType), 300)
			chunks = append(chunks, protowire.AppendTag(g, 777, protowire.EndGroupType))
		}
	}
	rng.Shuffle(len(chunks), func(i, k int) { chunks[i], chunks[k] = chunks[k], chunks[i] })
	var out []byte
	for _, c := range chunks {
		out = append(out, c...)
	}
	return out
}
