package pulsarwire

import (
	"bufio"
	"encoding/binary"
	"io"
	"math/bits"
	"sync"
)

const (
	frameRest      = 64 << 10 // bytes of a frame beside the message: command, metadata, checksum
	maxMessageSize = 5 << 20  // a broker's default, until it says its own
	maxFrame       = 1 << 30
	readBuffer     = 64 << 10
)

// appendFrame appends a command without a payload.
func appendFrame(b []byte, command fields) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(command)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(command)))
	return append(b, command...)
}

// readFrame reads a frame: its command, and what follows it in memory of its own; release
// gives that back. command is valid until the next call.
func readFrame(r *bufio.Reader, most int64, scratch *[]byte) (c command, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return c, nil, err
	}
	total, size := int64(binary.BigEndian.Uint32(head[:])), int64(binary.BigEndian.Uint32(head[4:]))
	if total < 4 || size > total-4 || total > most+frameRest {
		return c, nil, damaged("a frame of %d bytes with a command of %d; the longest message is one of %d", total, size, most)
	}
	if int64(cap(*scratch)) < size {
		if size > frameRest {
			return c, nil, damaged("a command of %d bytes", size)
		}
		*scratch = make([]byte, size)
	}
	text := (*scratch)[:size]
	if _, err := io.ReadFull(r, text); err != nil {
		return c, nil, notEOF(err)
	}
	if c, err = parseCommand(text); err != nil {
		return c, nil, err
	}
	rest := total - 4 - size
	if rest == 0 {
		return c, nil, nil
	}
	if c.kind != cmdMessage {
		_, err = io.CopyN(io.Discard, r, rest)
		return c, nil, notEOF(err)
	}
	payload = memory(rest)
	if _, err := io.ReadFull(r, payload); err != nil {
		release(payload)
		return c, nil, notEOF(err)
	}
	return c, payload, nil
}

func notEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// The memory of entries is used again, in sizes of powers of two.
const (
	leastMemory = 9  // 512 bytes
	mostMemory  = 23 // 8 MiB; what is larger is not kept
)

var memories [mostMemory + 1]sync.Pool

func memory(size int64) []byte {
	class := max(bits.Len64(uint64(size-1)), leastMemory)
	if size < 1 || class > mostMemory {
		return make([]byte, size)
	}
	if b, ok := memories[class].Get().(*[]byte); ok {
		return (*b)[:size]
	}
	return make([]byte, size, 1<<class)
}

// release gives memory back. It must not be used after that.
func release(b []byte) {
	class := bits.Len64(uint64(cap(b))) - 1
	if class < leastMemory || class > mostMemory || cap(b) != 1<<class {
		return
	}
	b = b[:0]
	memories[class].Put(&b)
}
