package pulsarwire

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	magicChecksum    = 0x0e01
	magicBrokerEntry = 0x0e02
	messagesMost     = 1 << 20 // in an entry; the protocol's own limit is lower
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry is one entry of a ledger. Open it to get its messages.
type Entry struct {
	Ledger, Entry int64

	frame []byte // as it came

	// What Open has found.
	Messages  int // one, or as many as the batch has
	Chunk     Chunk
	Encrypted bool

	batch     bool
	null      bool // of all its messages
	published int64
	metadata  []byte // of an entry that is not a batch
	codec     uint64
	size      int64 // uncompressed, if there is a codec
	payload   []byte
	inflated  []byte // memory of payload, if it was compressed
	read      int    // messages that Next has returned
	single    singleMetadata
}

// Chunk says which part of a message an entry has. Of is 0 if it has all of it.
type Chunk struct {
	UUID   string
	ID, Of int32
	Total  int64 // bytes of all parts, as stored
	Size   int64 // uncompressed
}

// Message is one message of an entry. Its bytes are valid until the entry is released or the
// next message is asked for.
type Message struct {
	Key, Value       []byte
	Null             bool
	Event, Published int64 // ms since the epoch; 0: none
	Properties       []Property
}

// Property is a key and a value of a message.
type Property struct{ Key, Value []byte }

type singleMetadata struct {
	size       int64
	message    Message
	properties []Property
	key        []byte // memory of a key that was encoded
}

// decodeKey decodes a key that its producer set as bytes: Pulsar stores it as base64 text. A
// key that is no such text stays as it is stored.
func (e *Entry) decodeKey(m *Message) {
	if m.Key == nil {
		return
	}
	if key, err := base64.StdEncoding.AppendDecode(e.single.key[:0], m.Key); err == nil {
		e.single.key, m.Key = key, key
	}
}

// Size is how many bytes the entry has, as stored.
func (e *Entry) Size() int64 { return int64(len(e.frame)) }

// Release gives the entry's memory back.
func (e *Entry) Release() {
	release(e.frame)
	release(e.inflated)
	e.frame, e.inflated, e.payload, e.metadata = nil, nil, nil, nil
}

// count reads how many messages an entry has, for the broker's count of permits. It is 1 if
// the entry is damaged.
func (e *Entry) count() int64 {
	metadata, _, err := e.split(false)
	n := int64(1)
	if err != nil {
		return n
	}
	_ = eachField(metadata, func(f protowire.Number, number uint64, _ []byte) {
		if f == 11 && number > 0 && number <= messagesMost {
			n = int64(number)
		}
	})
	return n
}

// split returns the parts of the frame after the command.
func (e *Entry) split(check bool) (metadata, payload []byte, err error) {
	b := e.frame
	take := func(what string) []byte {
		if err != nil {
			return nil
		}
		if len(b) < 4 || int64(len(b)-4) < int64(binary.BigEndian.Uint32(b)) {
			err = damaged("%s of the entry is longer than the entry", what)
			return nil
		}
		n := 4 + int(binary.BigEndian.Uint32(b))
		part := b[4:n]
		b = b[n:]
		return part
	}
	if len(b) >= 2 && binary.BigEndian.Uint16(b) == magicBrokerEntry {
		b = b[2:]
		take("the broker's metadata")
	}
	if len(b) >= 6 && binary.BigEndian.Uint16(b) == magicChecksum {
		if want := binary.BigEndian.Uint32(b[2:]); check && err == nil && crc32.Checksum(b[6:], castagnoli) != want {
			return nil, nil, damaged("the checksum of the entry is wrong")
		}
		b = b[6:]
	}
	metadata = take("the metadata")
	return metadata, b, err
}

// Open checks the entry, reads its metadata and, if it is not a part of a message,
// decompresses it. An entry of more than most bytes, uncompressed, is a *TooLarge error.
func (e *Entry) Open(most int64) error {
	release(e.inflated) // it may have been open before
	e.inflated = nil
	metadata, payload, err := e.split(true)
	if err != nil {
		return err
	}
	e.Messages, e.Chunk, e.Encrypted, e.batch, e.null, e.read = 1, Chunk{}, false, false, false, 0
	e.published, e.codec, e.size, e.metadata, e.payload = 0, 0, 0, metadata, payload
	messages := int64(0)
	if err := eachField(metadata, func(n protowire.Number, number uint64, b []byte) {
		switch n {
		case 3:
			e.published = int64(number)
		case 8:
			e.codec = number
		case 9:
			e.size = int64(uint32(number)) // as the protocol has it: 32 bits
		case 11:
			e.batch, messages = true, int64(int32(number))
		case 13:
			e.Encrypted = true
		case 25:
			e.null = number != 0
		case 26:
			e.Chunk.UUID = string(b)
		case 27:
			e.Chunk.Of = int32(number)
		case 28:
			e.Chunk.Total = int64(int32(number))
		case 29:
			e.Chunk.ID = int32(number)
		}
	}); err != nil {
		return damaged("the metadata of the entry: %v", err)
	}
	if e.batch {
		if messages < 1 || messages > messagesMost {
			return damaged("the entry says that it has %d messages", messages)
		}
		e.Messages = int(messages)
	}
	if e.Chunk.Of <= 1 {
		e.Chunk = Chunk{}
	} else if e.Chunk.Size = e.size; e.Chunk.ID < 0 || e.Chunk.ID >= e.Chunk.Of || e.Chunk.Total < 0 || e.batch {
		return damaged("the entry says that it is part %d of %d of a message of %d bytes", e.Chunk.ID, e.Chunk.Of, e.Chunk.Total)
	}
	if e.Encrypted || e.Chunk.Of > 0 {
		return nil
	}
	return e.inflate(most)
}

// Stored returns the stored bytes of an entry that is a part of a message.
func (e *Entry) Stored() []byte { return e.payload }

// Assembled turns the last part of a message into the whole message. stored has the stored
// bytes of all parts.
func (e *Entry) Assembled(stored []byte, most int64) error {
	e.payload = stored
	return e.inflate(most)
}

// inflate decompresses the payload.
func (e *Entry) inflate(most int64) error {
	if max(e.size, int64(len(e.payload))) > most {
		return &TooLarge{max(e.size, int64(len(e.payload))), most}
	}
	switch {
	case e.codec == 0:
		return nil
	case e.size == 0: // codecs write some bytes even for an empty payload
		e.payload = e.payload[:0]
		return nil
	}
	e.inflated = memory(e.size)
	n, err := inflate(e.codec, e.inflated, e.payload)
	if err == nil && n != len(e.inflated) {
		err = damaged("%d bytes, its metadata says %d", n, len(e.inflated))
	}
	if err != nil {
		return damaged("decompressing the entry: %v", err)
	}
	e.payload = e.inflated
	return nil
}

var (
	zlibReaders sync.Pool
	zstdReader  = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxFrame), zstd.WithDecodeAllCapLimit(true))
	})
)

// inflate decompresses src into dst, and returns how many bytes there are. There must not be
// more than dst holds.
func inflate(codec uint64, dst, src []byte) (int, error) {
	switch codec {
	case 1:
		return lz4.UncompressBlock(src, dst)
	case 2:
		return inflateZlib(dst, src)
	case 3:
		d, err := zstdReader()
		if err != nil {
			return 0, err
		}
		out, err := d.DecodeAll(src, dst[:0:len(dst)])
		return len(out), err
	case 4:
		n, err := snappy.DecodedLen(src)
		if err != nil || n != len(dst) {
			return n, err
		}
		_, err = snappy.Decode(dst, src)
		return n, err
	}
	return 0, damaged("compression %d is unknown", codec)
}

func inflateZlib(dst, src []byte) (int, error) {
	var r io.ReadCloser
	var err error
	if kept, ok := zlibReaders.Get().(io.ReadCloser); ok {
		r, err = kept, kept.(zlib.Resetter).Reset(bytes.NewReader(src), nil)
	} else {
		r, err = zlib.NewReader(bytes.NewReader(src))
	}
	if err != nil {
		return 0, err
	}
	defer zlibReaders.Put(r)
	n, err := io.ReadFull(r, dst)
	if err != nil {
		return n, err
	}
	var more [1]byte
	k, _ := r.Read(more[:]) // the Java client does not finish the stream, so there may be no end
	return n + k, nil
}

// Read is how many messages Next has returned.
func (e *Entry) Read() int { return e.read }

// Next returns the next message of an entry that is open. There are e.Messages of them.
func (e *Entry) Next() (*Message, error) {
	m := &e.single.message
	if e.read++; !e.batch {
		return m, e.whole(m)
	}
	if err := e.nextOfBatch(m); err != nil {
		return nil, err
	}
	return m, nil
}

// whole reads an entry that is one message.
func (e *Entry) whole(m *Message) error {
	*m = Message{Value: e.payload, Published: e.published, Null: e.null}
	e.single.properties = e.single.properties[:0]
	encoded := false
	err := eachField(e.metadata, func(n protowire.Number, number uint64, b []byte) {
		switch n {
		case 4:
			e.property(b)
		case 6:
			m.Key = b
		case 12:
			m.Event = int64(number)
		case 17:
			encoded = number != 0
		}
	})
	if encoded {
		e.decodeKey(m)
	}
	m.Properties = e.single.properties
	if m.Null {
		m.Value = nil
	}
	return err
}

func (e *Entry) nextOfBatch(m *Message) error {
	b := e.payload
	if len(b) < 4 || int64(len(b)-4) < int64(binary.BigEndian.Uint32(b)) {
		return damaged("message %d of the %d in the entry is cut off", e.read-1, e.Messages)
	}
	metadata := b[4 : 4+binary.BigEndian.Uint32(b)]
	b = b[4+len(metadata):]
	*m = Message{Published: e.published, Null: e.null}
	e.single.size, e.single.properties = -1, e.single.properties[:0]
	if err := e.singleFields(metadata, m); err != nil {
		return damaged("message %d of the %d in the entry: %v", e.read-1, e.Messages, err)
	}
	if e.single.size < 0 || e.single.size > int64(len(b)) {
		return damaged("message %d of the %d in the entry says that it has %d bytes; %d are left", e.read-1, e.Messages, e.single.size, len(b))
	}
	m.Value, e.payload = b[:e.single.size:e.single.size], b[e.single.size:]
	m.Properties = e.single.properties
	if m.Null {
		m.Value = nil
	}
	return nil
}

// singleFields reads a SingleMessageMetadata. It is called for each message, so it has no
// closure, and its first case is what a producer's defaults write.
func (e *Entry) singleFields(b []byte, m *Message) error {
	encoded := false
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		switch {
		case kind == protowire.VarintType:
			var v uint64
			if v, size = protowire.ConsumeVarint(b); size < 0 {
				return protowire.ParseError(size)
			}
			switch n {
			case 3:
				e.single.size = int64(int32(min(v, math.MaxInt32)))
			case 5:
				m.Event = int64(v)
			case 6:
				encoded = v != 0
			case 9:
				m.Null = e.null || v != 0
			}
		case kind == protowire.BytesType:
			var v []byte
			if v, size = protowire.ConsumeBytes(b); size < 0 {
				return protowire.ParseError(size)
			}
			switch n {
			case 1:
				e.property(v)
			case 2:
				m.Key = v
			}
		default:
			if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
				return protowire.ParseError(size)
			}
		}
		b = b[size:]
	}
	if encoded {
		e.decodeKey(m)
	}
	return nil
}

// property adds a KeyValue.
func (e *Entry) property(b []byte) {
	var p Property
	if eachField(b, func(n protowire.Number, _ uint64, v []byte) {
		switch n {
		case 1:
			p.Key = v
		case 2:
			p.Value = v
		}
	}) == nil {
		e.single.properties = append(e.single.properties, p)
	}
}
