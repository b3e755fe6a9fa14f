package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errShortPage = errors.New("a page has fewer values than it says")

// Encodings.
const (
	plainEncoding       = 0
	plainDictionary     = 2
	rleEncoding         = 3
	bitPackedEncoding   = 4
	deltaBinaryPacked   = 5
	deltaLengthBytes    = 6
	deltaBytes          = 7
	rleDictionary       = 8
	byteStreamSplitCode = 9
)

// decode reads the values of a page, count of them, that are neither entries of a dictionary nor
// bools in runs. The result may share the memory of b.
func (n *node) decode(b []byte, count int, encoding int32) (values, error) {
	v := values{n: count}
	var err error
	switch {
	case encoding == plainEncoding && n.typ == boolean:
		v.data, err = plainBools(b, count)
	case encoding == plainEncoding && n.typ == byteArray:
		v.own = true
		v.data, v.offsets, err = plainBytes(b, count)
	case encoding == plainEncoding:
		w := n.width()
		if count > len(b)/w {
			return v, errShortPage
		}
		v.data = b[:count*w]
	case encoding == deltaBinaryPacked && n.typ == int32Type, encoding == deltaBinaryPacked && n.typ == int64Type:
		v.data, err = deltaNumbers(b, count, n.width())
	case encoding == deltaLengthBytes && n.typ == byteArray:
		v.data, v.offsets, err = deltaLengths(b, count)
	case encoding == deltaBytes && n.typ == byteArray:
		v.data, v.offsets, err = deltaStrings(b, count)
	case encoding == deltaBytes && n.typ == fixedBytes:
		v.data, v.offsets, err = deltaStrings(b, count)
		for i := range v.offsets {
			if err == nil && v.offsets[i] != int32(i)*n.length {
				err = errors.New("a value has another length than its type")
			}
		}
	case encoding == byteStreamSplitCode && n.width() > 0:
		v.data, err = byteStreamSplit(b, count, n.width())
	default:
		return v, fmt.Errorf("the encoding %d is not supported for its type; write the file with another one", encoding)
	}
	if err != nil {
		return v, err
	}
	return v, n.normalize(&v)
}

func plainBools(b []byte, n int) ([]byte, error) {
	if n > 8*len(b) {
		return nil, errShortPage
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = b[i>>3] >> (i & 7) & 1
	}
	return out, nil
}

// boolRuns returns bools in runs. They are read when they are wanted, because a run of a few
// bytes may have any number of them.
func boolRuns(b []byte) (hybrid, error) {
	if len(b) < 4 || int64(binary.LittleEndian.Uint32(b)) > int64(len(b)-4) {
		return hybrid{}, errShortPage
	}
	return newHybrid(b[4:4+binary.LittleEndian.Uint32(b)], 1), nil
}

// plainBytes reads values that each follow their length. It returns them end to end, with
// their offsets.
func plainBytes(b []byte, n int) ([]byte, []int32, error) {
	if n > len(b)/4 {
		return nil, nil, errShortPage
	}
	// A short value is copied as a word of 8 bytes. The next value overwrites the surplus.
	data, offsets := take(len(b)-4*n+8), takeOffsets(n+1)
	offsets[0] = 0
	at := 0
	for i := range n {
		if len(b) < 4 {
			return nil, nil, errShortPage
		}
		size := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(size) > uint64(len(b)) {
			return nil, nil, errShortPage
		}
		if size <= 8 && len(b) >= 8 && at+8 <= len(data) {
			binary.LittleEndian.PutUint64(data[at:], binary.LittleEndian.Uint64(b))
			at += int(size)
		} else {
			at += copy(data[at:], b[:size])
		}
		offsets[i+1] = int32(at)
		b = b[size:]
	}
	return data[:at], offsets, nil
}

func byteStreamSplit(b []byte, n, width int) ([]byte, error) {
	if n > len(b)/width {
		return nil, errShortPage
	}
	out := make([]byte, n*width)
	for k := range width {
		for i, v := range b[k*n : (k+1)*n] {
			out[i*width+k] = v
		}
	}
	return out, nil
}
