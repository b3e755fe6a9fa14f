package kafka

import (
	"encoding/binary"
	"hash/crc32"
)

// sums checks the checksums of batches piece by piece, while their answer arrives. Right after
// a piece was copied from the socket it is in the processor's cache; later it is not.
type sums struct {
	begun bool   // from, end and good are known
	from  int    // where the records begin in the answer
	end   int    // where they end
	good  int    // the batches before it are whole and match their checksums
	done  int    // bytes of the batch at good that are in sum
	sum   uint32 // the checksum of these bytes
	over  bool   // the batch at good is damaged or not whole
}

// came gets all bytes of the answer that have arrived so far. The answer is that to a Fetch
// of one partition.
func (s *sums) came(answer []byte) {
	if !s.begun {
		if s.from, s.end = recordsIn(answer); s.end == 0 {
			return
		}
		s.begun, s.good = true, s.from
	}
	for !s.over {
		batch := answer[s.good:min(len(answer), s.end)]
		if len(batch) < headerSize {
			return
		}
		size := int64(int32(binary.BigEndian.Uint32(batch[8:]))) + 12
		if size < headerSize || size > int64(s.end-s.good) {
			s.over = true
			return
		}
		batch = batch[:min(int64(len(batch)), size)]
		s.done = max(s.done, crcFrom)
		s.sum = crc32.Update(s.sum, castagnoli, batch[s.done:])
		if s.done = len(batch); int64(s.done) < size {
			return
		}
		if s.sum != binary.BigEndian.Uint32(batch[17:]) {
			s.over = true
			return
		}
		s.good, s.done, s.sum = s.good+s.done, 0, 0
	}
}

// recordsIn returns where the records of the one partition lie in an answer that begins with
// these bytes; 0, 0 if that cannot be known yet.
func recordsIn(answer []byte) (from, end int) {
	r := &reader{b: answer}
	r.i32() // correlation
	r.tags()
	r.i32() // throttle
	if r.i16() != codeNone {
		return 0, 0
	}
	r.i32() // session
	if r.length(18) != 1 {
		return 0, 0
	}
	r.id()
	if r.length(36) != 1 {
		return 0, 0
	}
	var f fetched
	r.fetchedHead(&f)
	n := r.uvarint()
	if r.err != nil || n == 0 || n > fetchLimit {
		return 0, 0
	}
	return r.at, r.at + int(n-1)
}
