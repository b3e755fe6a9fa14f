package rocketmq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/headrace/headrace/sources"
)

// The layout of a stored message. Its size depends on the addresses of the hosts, the topic,
// the body and the properties. Every length is checked before it is used.
const (
	magicV1 = 0xDAA320A7 // the topic's length has one byte
	magicV2 = 0xDAA320AB // two bytes

	flagBatchInside = 1 << 7 // the body is a batch of messages that share one queue entry
	fixedSize       = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 8 + 4 + 1 + 2
	ipv6Extra       = 12
)

var errMessage = errors.New("damaged message")

// message says where the parts of a message lie, relative to its first byte.
type message struct {
	size        int
	queue       int
	flags       int
	queueOffset int64
	place       int64 // in the broker's commit log
	born        int64 // ms
	stored      int64 // ms
	crc         uint32
	host        [2]int // where the producer ran
	topic       [2]int
	body        [2]int
	properties  [2]int
}

// read parses the message at the beginning of b. b may be any bytes.
func (m *message) read(b []byte) error {
	if len(b) < fixedSize {
		return fmt.Errorf("%w: %d bytes are left", errMessage, len(b))
	}
	size := int(binary.BigEndian.Uint32(b))
	if size < fixedSize || size > len(b) {
		return fmt.Errorf("%w: its size is %d, and %d bytes are left", errMessage, size, len(b))
	}
	b = b[:size]
	magic := binary.BigEndian.Uint32(b[4:])
	if magic != magicV1 && magic != magicV2 {
		return fmt.Errorf("%w: it begins with %08x", errMessage, magic)
	}
	m.size, m.crc = size, binary.BigEndian.Uint32(b[8:])
	m.queue = int(int32(binary.BigEndian.Uint32(b[12:])))
	m.queueOffset, m.place = int64(binary.BigEndian.Uint64(b[20:])), int64(binary.BigEndian.Uint64(b[28:]))
	m.flags = int(binary.BigEndian.Uint32(b[36:]))
	m.born = int64(binary.BigEndian.Uint64(b[40:]))
	at := 48 + 8
	if m.flags&primitive.FlagBornHostV6 != 0 {
		at += ipv6Extra
	}
	m.host = [2]int{48, at}
	// From here on a part may lie after the end of b, so rest checks each of them.
	r := rest{b: b, at: at}
	m.stored = int64(r.number(8))
	r.skip(8)
	if m.flags&primitive.FlagStoreHostV6 != 0 {
		r.skip(ipv6Extra)
	}
	r.skip(4 + 8) // reconsumed, prepared transaction
	m.body = r.piece(4)
	if magic == magicV1 {
		m.topic = r.piece(1)
	} else {
		m.topic = r.piece(2)
	}
	m.properties = r.piece(2)
	if r.short || r.at != size {
		return fmt.Errorf("%w: its parts have other sizes than its %d bytes", errMessage, size)
	}
	return nil
}

// rest reads parts of a buffer. short is set if the buffer was too short for one of them.
type rest struct {
	b     []byte
	at    int
	short bool
}

func (r *rest) skip(n int) {
	if r.short = r.short || n < 0 || n > len(r.b)-r.at; !r.short {
		r.at += n
	}
}

func (r *rest) number(bytes int) (v uint64) {
	from := r.at
	if r.skip(bytes); r.short {
		return 0
	}
	for _, c := range r.b[from:r.at] {
		v = v<<8 | uint64(c)
	}
	return v
}

func (r *rest) piece(lengthBytes int) [2]int {
	n := r.number(lengthBytes)
	from := r.at
	if r.skip(int(n)); r.short {
		return [2]int{}
	}
	return [2]int{from, r.at}
}

// check compares the body with its checksum, and the message's queue and topic with those
// that were asked for.
func (m *message) check(b []byte, p partition) error {
	body := b[m.body[0]:m.body[1]]
	// An empty body has the checksum 0. The broker drops the sum's highest bit.
	if sum := crc32.ChecksumIEEE(body) & 0x7fffffff; sum != m.crc {
		return fmt.Errorf("%w: the checksum of its body is %08x and not %08x", errMessage, sum, m.crc)
	}
	if m.queue != p.queue || string(b[m.topic[0]:m.topic[1]]) != p.topic {
		return fmt.Errorf("%w: it is of queue %d of topic %q", errMessage, m.queue, b[m.topic[0]:m.topic[1]])
	}
	if m.flags&flagBatchInside != 0 {
		return errBatchQueue
	}
	return nil
}

var errBatchQueue = errors.New("the topic keeps whole batches as one entry (queue.type BatchCQ), which is not supported: use a topic with SimpleCQ")

// tagged says whether one of tags is the message's tag.
func (m *message) tagged(b []byte, tags []string) bool {
	var tag []byte
	eachProperty(b[m.properties[0]:m.properties[1]], func(name, value [2]int) {
		if p := b[m.properties[0]:]; string(p[name[0]:name[1]]) == primitive.PropertyTags {
			tag = p[value[0]:value[1]]
		}
	})
	for _, t := range tags {
		if strings.TrimSpace(t) == string(tag) {
			return true
		}
	}
	return false
}

// eachProperty calls f for each "name \x01 value \x02". The last one may have no \x02.
func eachProperty(b []byte, f func(name, value [2]int)) {
	for at := 0; at < len(b); {
		end := bytes.IndexByte(b[at:], 2)
		if end < 0 {
			end = len(b) - at
		}
		if cut := bytes.IndexByte(b[at:at+end], 1); cut >= 0 {
			f([2]int{at, at + cut}, [2]int{at + cut + 1, at + end})
		}
		at += end + 1
	}
}

// tooLarge means that the message at offset has a body of more than max_record bytes.
type tooLarge struct{ offset, size int64 }

func (e *tooLarge) Error() string {
	return fmt.Sprintf("message %d has a body of %d bytes", e.offset, e.size)
}

// appendRecord appends the message at the beginning of b to out.
func (m *message) appendRecord(b []byte, maxRecord int64, bare bool, out *sources.Batch) error {
	from := len(out.Arena)
	body := b[m.body[0]:m.body[1]]
	if m.flags&primitive.FlagCompressed != 0 {
		var err error
		if out.Arena, err = inflate(m.flags, out.Arena, body, maxRecord); err != nil {
			out.Arena = out.Arena[:from]
			if errors.Is(err, errLong) {
				return &tooLarge{m.queueOffset, maxRecord + 1}
			}
			if errors.Is(err, errWindow) {
				return err
			}
			return fmt.Errorf("%w: its body cannot be decompressed: %w", errMessage, err)
		}
	} else {
		if int64(len(body)) > maxRecord {
			return &tooLarge{m.queueOffset, int64(len(body))}
		}
		out.Arena = append(out.Arena, body...)
	}
	value := [2]int32{int32(from), int32(len(out.Arena))}
	n := len(out.Recs)
	if n < cap(out.Recs) {
		out.Recs = out.Recs[:n+1]
	} else {
		out.Recs = append(out.Recs, sources.Record{})
	}
	rec := &out.Recs[n]
	*rec = sources.Record{Offset: m.queueOffset, Next: m.queueOffset + 1, Value: value, Time: m.born, Headers: rec.Headers[:0]}
	if bare || m.properties[0] == m.properties[1] {
		return nil
	}
	base := len(out.Arena)
	out.Arena = append(out.Arena, b[m.properties[0]:m.properties[1]]...)
	eachProperty(out.Arena[base:], func(name, value [2]int) {
		h := sources.Header{Key: shifted(name, base), Value: shifted(value, base)}
		if rec.Headers = append(rec.Headers, h); string(out.Arena[h.Key[0]:h.Key[1]]) == primitive.PropertyKeys {
			rec.Key = h.Value
		}
	})
	return nil
}

func shifted(p [2]int, by int) [2]int32 { return [2]int32{int32(p[0] + by), int32(p[1] + by)} }
