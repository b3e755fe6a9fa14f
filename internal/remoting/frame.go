package remoting

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A frame is: length of the rest (4 bytes), serialization type (1 byte) and length
// of the header (3 bytes), header, body. We write and read type 0, JSON.
const (
	frameMost   = 512 << 20 // a longer frame is damage
	headerMost  = 8 << 20
	bodyAtOnce  = 1 << 20 // memory grows as bytes come; the length in the frame may be wrong
	flagAnswer  = 1
	flagOneWay  = 2
	language    = "GO"
	version     = 317 // what official clients of 4.9.x send; the broker answers by it
	typeMask    = 0xff << 24
	lengthBytes = 4
	usualHeader = 512 // bytes of a request without a body, at most as a rule
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

var errFrame = errors.New("damaged frame")

// append encodes c.
func (c *Command) append(b []byte) ([]byte, error) {
	from := len(b)
	b, err := c.appendHeader(append(slices.Grow(b, usualHeader), make([]byte, 2*lengthBytes)...))
	if err != nil {
		return nil, err
	}
	length := len(b) - from - 2*lengthBytes
	binary.BigEndian.PutUint32(b[from:], uint32(lengthBytes+length+len(c.Body)))
	binary.BigEndian.PutUint32(b[from+lengthBytes:], uint32(length)) // type 0
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
	if word&typeMask != 0 {
		return c, 0, fmt.Errorf("%w: the header's encoding is %d, and we asked in JSON", errFrame, word>>24)
	}
	c, err = parseHeader(text)
	return c, int(total - lengthBytes - length), err
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

// notEOF: the end of the connection in the middle of a frame is an error.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
