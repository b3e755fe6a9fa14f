package frame

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Protocol is the version of the trainer socket that HELLO and WELCOME carry.
const Protocol = 1

// Limits of docs/PROTOCOL.md; sizes in bytes.
const (
	HeaderSize = 16
	maxControl = 1 << 20   // payload of any message but those below
	MaxCall    = 256 << 20 // payload of CALL and ANSWER, which carry cuts
	MaxFrame   = 1 << 30   // payload of FRAME
)

// Type is the kind of a message.
type Type uint16

const (
	TypeHello        Type = 1
	TypeWelcome      Type = 2
	TypeError        Type = 3
	TypeOpen         Type = 4
	TypeOpened       Type = 5
	TypeAttach       Type = 6
	TypeCredit       Type = 7
	TypeFrame        Type = 8
	TypeEnd          Type = 9
	TypeStep         Type = 10
	TypeAcked        Type = 11
	TypeFenced       Type = 12
	TypeQuit         Type = 13
	TypePause        Type = 14
	TypeStats        Type = 15
	TypeClose        Type = 16
	TypeBye          Type = 17
	TypePing         Type = 18
	TypePong         Type = 19
	TypeState        Type = 20
	TypeCall         Type = 21
	TypeAnswer       Type = 22
	TypePauseYields  Type = 23
	TypeYieldsPaused Type = 24
	TypeRegion       Type = 25
	TypeFrameAt      Type = 26
	TypeRelease      Type = 27
	TypeForget       Type = 28
	TypeReady        Type = 29
	TypeRound        Type = 30
	TypeEnded        Type = 31
)

var typeNames = [...]string{
	TypeHello: "HELLO", TypeWelcome: "WELCOME", TypeError: "ERROR", TypeOpen: "OPEN", TypeOpened: "OPENED",
	TypeAttach: "ATTACH", TypeCredit: "CREDIT", TypeFrame: "FRAME", TypeEnd: "END", TypeStep: "STEP",
	TypeAcked: "ACKED", TypeFenced: "FENCED", TypeQuit: "QUIT", TypePause: "PAUSE", TypeStats: "STATS",
	TypeClose: "CLOSE", TypeBye: "BYE", TypePing: "PING", TypePong: "PONG", TypeState: "STATE",
	TypeCall: "CALL", TypeAnswer: "ANSWER", TypePauseYields: "PAUSE_YIELDS", TypeYieldsPaused: "YIELDS_PAUSED",
	TypeRegion: "REGION", TypeFrameAt: "FRAME_AT", TypeRelease: "RELEASE", TypeForget: "FORGET",
	TypeReady: "READY", TypeRound: "ROUND", TypeEnded: "ENDED",
}

func (t Type) String() string {
	if t.Known() {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint16(t))
}

// Known reports whether this version of the protocol has t.
func (t Type) Known() bool { return int(t) < len(typeNames) && typeNames[t] != "" }

// limit is the most bytes of payload that a message of t may have.
func (t Type) limit() int {
	switch t {
	case TypeFrame:
		return MaxFrame
	case TypeCall, TypeAnswer:
		return MaxCall
	}
	return maxControl
}

// Header precedes every message.
type Header struct {
	Length uint32 // bytes of payload after the header
	Type   Type
	Flags  uint16
	Stream uint32 // the trainer's number of the stream, from 1; 0: the process
	Number uint32 // batches (FRAME), credits (CREDIT), else 0
}

// ErrProtocol is wrapped by every error that bytes of the other side have caused. Answer
// it with ERROR code "protocol" and close the connection.
var ErrProtocol = errors.New("protocol error on the trainer socket")

// Put writes the header's 16 bytes.
func (h Header) Put(b *[HeaderSize]byte) {
	binary.LittleEndian.PutUint32(b[0:], h.Length)
	binary.LittleEndian.PutUint16(b[4:], uint16(h.Type))
	binary.LittleEndian.PutUint16(b[6:], h.Flags)
	binary.LittleEndian.PutUint32(b[8:], h.Stream)
	binary.LittleEndian.PutUint32(b[12:], h.Number)
}

// parseHeader checks type, flags and length against the limits.
// Errors wrap ErrProtocol.
func parseHeader(b *[HeaderSize]byte) (Header, error) {
	h := Header{
		Length: binary.LittleEndian.Uint32(b[0:]),
		Type:   Type(binary.LittleEndian.Uint16(b[4:])),
		Flags:  binary.LittleEndian.Uint16(b[6:]),
		Stream: binary.LittleEndian.Uint32(b[8:]),
		Number: binary.LittleEndian.Uint32(b[12:]),
	}
	if !h.Type.Known() {
		return h, fmt.Errorf("%w: unknown message %s; client and agent are of different versions", ErrProtocol, h.Type)
	}
	if h.Flags != 0 {
		return h, fmt.Errorf("%w: %s has flags %#x, this version knows none", ErrProtocol, h.Type, h.Flags)
	}
	if limit := h.Type.limit(); int64(h.Length) > int64(limit) {
		return h, fmt.Errorf("%w: %s of %d bytes is longer than the limit of %d", ErrProtocol, h.Type, h.Length, limit)
	}
	return h, nil
}

// ReadHeader reads one header. io.EOF: closed between messages;
// io.ErrUnexpectedEOF: closed inside one. Other errors are r's or wrap ErrProtocol.
func ReadHeader(r io.Reader) (Header, error) {
	var b [HeaderSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Header{}, err
	}
	return parseHeader(&b)
}

// ReadControl reads one whole message other than FRAME into buf, which grows as
// needed; the payload is valid until buf is used again. A FRAME is refused: its
// receiver chooses where the payload goes (ReadHeader, then ReadPayload).
func ReadControl(r io.Reader, buf *[]byte) (Header, []byte, error) {
	h, err := ReadHeader(r)
	if err != nil {
		return h, nil, err
	}
	if h.Type == TypeFrame {
		return h, nil, fmt.Errorf("%w: FRAME on a control connection", ErrProtocol)
	}
	if err := ReadPayload(r, h, buf); err != nil {
		return h, nil, err
	}
	return h, *buf, nil
}

// ReadPayload reads the payload of h into buf, which it sets to that length.
// Memory grows with what arrives, not with what the header claims.
func ReadPayload(r io.Reader, h Header, buf *[]byte) error {
	const piece = 1 << 20
	n := int(h.Length)
	b := (*buf)[:0]
	for len(b) < n {
		take := min(n-len(b), max(piece, cap(b)-len(b)))
		if cap(b)-len(b) < take {
			grown := make([]byte, len(b), min(n, 2*cap(b)+take))
			copy(grown, b)
			b = grown
		}
		got, err := io.ReadFull(r, b[len(b):len(b)+take])
		b = b[:len(b)+got]
		if err != nil {
			*buf = b
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	*buf = b
	return nil
}

// AppendControl appends one message with payload v as JSON; a nil v is no
// payload. It fails when the payload is over its type's limit.
func AppendControl(dst []byte, t Type, stream, number uint32, v any) ([]byte, error) {
	var payload []byte
	if v != nil {
		var err error
		if payload, err = json.Marshal(v); err != nil {
			return dst, fmt.Errorf("encode %s: %w", t, err)
		}
	}
	if limit := t.limit(); len(payload) > limit {
		return dst, fmt.Errorf("%s of %d bytes is longer than the limit of %d", t, len(payload), limit)
	}
	var b [HeaderSize]byte
	Header{Length: uint32(len(payload)), Type: t, Stream: stream, Number: number}.Put(&b)
	return append(append(dst, b[:]...), payload...), nil
}

// WriteControl writes one message in one Write.
func WriteControl(w io.Writer, t Type, stream, number uint32, v any) error {
	b, err := AppendControl(nil, t, stream, number, v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// Decode parses a control payload. Fields that this version does not know are
// ignored: a newer client may send them. Errors wrap ErrProtocol.
func Decode[T any](t Type, payload []byte) (T, error) {
	var v T
	if err := json.Unmarshal(payload, &v); err != nil {
		return v, fmt.Errorf("%w: payload of %s: %w", ErrProtocol, t, err)
	}
	return v, nil
}
