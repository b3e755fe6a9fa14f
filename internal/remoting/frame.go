package remoting

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A frame is: length of the rest (4 bytes), serialization type (1 byte) and length
// of the header (3 bytes), header, body. We write and read type 0, JSON.
const (
	frameMost   = 512 << 20 // a longer frame is damage
	headerMost  = 8 << 20
	bodyAtOnce  = 1 << 20 // memory is taken as bytes come, not as a length claims
	flagAnswer  = 1
	flagOneWay  = 2
	language    = "GO"
	version     = 317 // what official clients of 4.9.x send; the broker answers by it
	typeMask    = 0xff << 24
	lengthBytes = 4
)

// Command is a request or an answer.
type Command struct {
	Code   int
	Opaque int32 // pairs an answer with its request
	Flag   int
	Remark string
	Ext    map[string]string
	Body   []byte
}

type header struct {
	Code     int               `json:"code"`
	Language string            `json:"language"`
	Version  int               `json:"version"`
	Opaque   int32             `json:"opaque"`
	Flag     int               `json:"flag"`
	Remark   string            `json:"remark,omitempty"`
	Ext      map[string]string `json:"extFields,omitempty"`
}

// answered is a header that was read: a server's language is not a fixed text, and
// may be missing.
type answeredHeader struct {
	Code   int               `json:"code"`
	Opaque int32             `json:"opaque"`
	Flag   int               `json:"flag"`
	Remark string            `json:"remark"`
	Ext    map[string]string `json:"extFields"`
}

var errFrame = errors.New("damaged frame")

// append encodes c.
func (c *Command) append(b []byte) ([]byte, error) {
	h, err := json.Marshal(header{c.Code, language, version, c.Opaque, c.Flag, c.Remark, c.Ext})
	if err != nil {
		return nil, err
	}
	b = binary.BigEndian.AppendUint32(b, uint32(lengthBytes+len(h)+len(c.Body)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(h))) // type 0
	b = append(b, h...)
	return append(b, c.Body...), nil
}

// readHeader reads a frame up to its body, and says how long the body is.
func readHeader(r *bufio.Reader) (c Command, body int, err error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return c, 0, err
	}
	total := int64(binary.BigEndian.Uint32(lengths[:4]))
	word := binary.BigEndian.Uint32(lengths[4:])
	length := int64(word &^ typeMask)
	if total > frameMost || length > headerMost || total < lengthBytes+length {
		return c, 0, fmt.Errorf("%w: %d bytes, header of %d", errFrame, total, length)
	}
	text, err := readBody(r, int(length), nil)
	if err != nil {
		return c, 0, err
	}
	var h answeredHeader
	if word&typeMask == 0 {
		if err := json.Unmarshal(text, &h); err != nil {
			return c, 0, fmt.Errorf("%w: header: %w", errFrame, err)
		}
	} else {
		return c, 0, fmt.Errorf("%w: the header's encoding is %d, and we asked in JSON", errFrame, word>>24)
	}
	return Command{Code: h.Code, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark, Ext: h.Ext}, int(total - lengthBytes - length), nil
}

// readBody reads n bytes, into memory if they fit there.
func readBody(r io.Reader, n int, memory []byte) ([]byte, error) {
	b := memory[:0]
	for len(b) < n {
		piece := min(n-len(b), max(bodyAtOnce, cap(b)-len(b)))
		b = grow(b, piece)
		got, err := io.ReadFull(r, b[len(b):len(b)+piece])
		if b = b[:len(b)+got]; err != nil {
			return b, notEOF(err)
		}
	}
	return b, nil
}

// grow makes room for n more bytes.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	more := make([]byte, len(b), max(len(b)+n, 2*cap(b)))
	copy(more, b)
	return more
}

// notEOF: in the middle of a frame an end is not a good one.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
