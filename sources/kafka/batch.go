package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/headrace/headrace/sources"
)

// Layout of a record batch (magic 2).
const (
	headerSize = 61
	crcFrom    = 21 // the checksum covers the bytes from here on
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// errPartial means that the answer ends inside this batch. The next answer has all of it.
	errPartial = errors.New("part of a batch")
	errCRC     = errors.New("its checksum does not match its bytes")
	errBatch   = errors.New("its bytes are no records")
)

// header is the part of a batch before its records.
type header struct {
	base       int64
	epoch      int32 // of the leader that wrote it
	size       int   // of the whole batch
	attributes int16
	lastDelta  int32
	baseTime   int64
	maxTime    int64
	producer   int64
	count      int32
}

func (h *header) last() int64         { return h.base + int64(h.lastDelta) }
func (h *header) next() int64         { return h.last() + 1 }
func (h *header) codec() int16        { return h.attributes & 7 }
func (h *header) appendTime() bool    { return h.attributes&8 != 0 }
func (h *header) transactional() bool { return h.attributes&16 != 0 }
func (h *header) control() bool       { return h.attributes&32 != 0 }

// timeOf returns the time of a record. No time is -1 in Kafka and 0 here.
func (h *header) timeOf(delta int64) int64 {
	if h.appendTime() {
		return max(0, h.maxTime)
	}
	return max(0, h.baseTime+delta)
}

// parseHeader reads the header of the batch at the beginning of b. It does not check the
// checksum.
func parseHeader(b []byte) (header, error) {
	if len(b) < 17 {
		return header{}, errPartial
	}
	var h header
	h.base = int64(binary.BigEndian.Uint64(b))
	size := int64(int32(binary.BigEndian.Uint32(b[8:]))) + 12
	if magic := b[16]; magic != 2 {
		return h, fmt.Errorf("it has the message format %d, which brokers before 0.11 wrote; only 2 is read: %w", magic, errBatch)
	}
	if size < headerSize {
		return h, fmt.Errorf("it says that it has %d bytes: %w", size, errBatch)
	}
	if size > int64(len(b)) {
		return h, errPartial
	}
	h.size = int(size)
	h.epoch = int32(binary.BigEndian.Uint32(b[12:]))
	h.attributes = int16(binary.BigEndian.Uint16(b[21:]))
	h.lastDelta = int32(binary.BigEndian.Uint32(b[23:]))
	h.baseTime = int64(binary.BigEndian.Uint64(b[27:]))
	h.maxTime = int64(binary.BigEndian.Uint64(b[35:]))
	h.producer = int64(binary.BigEndian.Uint64(b[43:]))
	h.count = int32(binary.BigEndian.Uint32(b[57:]))
	const most = 1 << 62
	if h.base < 0 || h.base > most || h.lastDelta < 0 || h.count < 0 {
		return h, fmt.Errorf("base %d, last delta %d, count %d: %w", h.base, h.lastDelta, h.count, errBatch)
	}
	return h, nil
}

func checkSum(batch []byte) error {
	if crc32.Checksum(batch[crcFrom:], castagnoli) != binary.BigEndian.Uint32(batch[17:]) {
		return errCRC
	}
	return nil
}

// raw is one record. Places (key, value, headersAt) are relative to its first byte.
type raw struct {
	size        int // of the whole record
	timeDelta   int64
	offsetDelta int64
	key, value  [2]int32
	headers     int // how many
	headersAt   int
	tombstone   bool
}

// read parses the record at the beginning of b.
func (rec *raw) read(b []byte) bool {
	length, at := varint(b, 0)
	if at < 0 || length < 0 || length > int64(len(b)-at) {
		return false
	}
	end := at + int(length)
	b = b[:end]
	if at++; at > end { // attributes: none are defined
		return false
	}
	if rec.timeDelta, at = varint(b, at); at < 0 {
		return false
	}
	if rec.offsetDelta, at = varint(b, at); at < 0 {
		return false
	}
	if rec.key, at = piece(b, at); at < 0 {
		return false
	}
	valueAt := at
	if rec.value, at = piece(b, at); at < 0 {
		return false
	}
	if rec.tombstone = false; rec.value[0] == rec.value[1] {
		length, _ = varint(b, valueAt)
		rec.tombstone = length < 0
	}
	n, at := varint(b, at)
	if at < 0 || n < 0 || n > int64(end-at)/2 {
		return false
	}
	rec.headers, rec.headersAt, rec.size = int(n), at, end
	return true
}

// appendHeaders parses the record's headers, which lie in b, shifted by base.
func (rec *raw) appendHeaders(b []byte, base int32, all []sources.Header) ([]sources.Header, bool) {
	at := rec.headersAt
	b = b[:rec.size]
	for range rec.headers {
		var h sources.Header
		if h.Key, at = piece(b, at); at < 0 {
			return all, false
		}
		if h.Value, at = piece(b, at); at < 0 {
			return all, false
		}
		h.Key[0], h.Key[1] = h.Key[0]+base, h.Key[1]+base
		h.Value[0], h.Value[1] = h.Value[0]+base, h.Value[1]+base
		all = append(all, h)
	}
	return all, true
}

// piece reads a length and that many bytes. Length -1 is null, and counts as empty. next is
// -1 if the bytes are not there.
func piece(b []byte, at int) ([2]int32, int) {
	n, at := varint(b, at)
	if at < 0 || n > int64(len(b)-at) {
		return [2]int32{}, -1
	}
	if n < 0 {
		n = 0
	}
	return [2]int32{int32(at), int32(at + int(n))}, at + int(n)
}

// varint reads a zigzag number. next is -1 if there is none.
func varint(b []byte, at int) (v int64, next int) {
	u, next := uvarint(b, at)
	return int64(u>>1) ^ -int64(u&1), next
}

// uvarint is small enough to be inlined for the numbers of one byte.
func uvarint(b []byte, at int) (u uint64, next int) {
	if uint(at) < uint(len(b)) && b[at] < 0x80 {
		return uint64(b[at]), at + 1
	}
	return longUvarint(b, at)
}

// longUvarint tries two bytes first: most lengths of records and values have two.
func longUvarint(b []byte, at int) (u uint64, next int) {
	if at < 0 || at > len(b) {
		return 0, -1
	}
	if b := b[at:]; len(b) >= 2 && b[1] < 0x80 {
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, at + 2
	}
	u, n := binary.Uvarint(b[at:])
	if n <= 0 {
		return 0, -1
	}
	return u, at + n
}

// want says which records of a batch are wanted: offsets [from, end).
type want struct {
	from, end int64
	maxRecord int64
}

// tooLarge means that the record at offset has more bytes than max_record.
type tooLarge struct{ offset, size int64 }

func (e *tooLarge) Error() string { return fmt.Sprintf("record %d has %d bytes", e.offset, e.size) }

// appendRecords appends the wanted records of a batch whose decompressed records are
// arena[from:to]. With the error *tooLarge, it has appended the records before that one.
func appendRecords(h *header, arena []byte, from, to int, w want, out *sources.Batch) error {
	return appendAny(h, arena, to, appendPlain(h, arena, from, to, w, out), w, out)
}

// appendAny appends the records after those that appendPlain took (p), of any form.
func appendAny(h *header, arena []byte, to int, p plainRun, w want, out *sources.Batch) error {
	from, previous := p.from, p.previous
	for range p.left {
		var rec raw
		if !rec.read(arena[from:to]) {
			return errBatch
		}
		if rec.offsetDelta <= previous || rec.offsetDelta > int64(h.lastDelta) {
			return fmt.Errorf("offsets %d and %d follow each other: %w", h.base+previous, h.base+rec.offsetDelta, errBatch)
		}
		previous = rec.offsetDelta
		offset := h.base + rec.offsetDelta
		if offset >= w.end {
			return nil
		}
		if offset >= w.from {
			if err := appendRecord(h, &rec, arena, from, offset, w, out); err != nil {
				return err
			}
		}
		from += rec.size
	}
	return nil
}

func appendRecord(h *header, rec *raw, arena []byte, from int, offset int64, w want, out *sources.Batch) error {
	if size := int64(rec.key[1]-rec.key[0]) + int64(rec.value[1]-rec.value[0]); size > w.maxRecord {
		return &tooLarge{offset, size}
	}
	base := int32(from)
	r := sources.Record{Offset: offset, Next: offset + 1, Time: h.timeOf(rec.timeDelta),
		Key: [2]int32{rec.key[0] + base, rec.key[1] + base}, Value: [2]int32{rec.value[0] + base, rec.value[1] + base}, Tombstone: rec.tombstone}
	if rec.headers > 0 {
		all, ok := rec.appendHeaders(arena[from:], base, make([]sources.Header, 0, rec.headers))
		if !ok {
			return errBatch
		}
		r.Headers = all
	}
	out.Recs = append(out.Recs, r)
	return nil
}
