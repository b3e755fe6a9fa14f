// Package tfrecord knows how TFRecord files frame records: length (8 bytes, little-endian),
// CRC of the length, data, CRC of the data. A CRC is CRC-32C, masked: rotated and with a
// constant added (tensorflow/core/lib/io/record_writer.h). It reads no files.
package tfrecord

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Bytes of a record besides its data.
const (
	Head = 8 + 4 // before it
	Tail = 4     // after it
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the masked checksum of b.
func CRC(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), -15) + 0xa282ead8
}

// Length reads the first Head bytes of a record. ok is false if the CRC does not fit; wanted
// is what the record says it should be.
func Length(head []byte) (n uint64, wanted uint32, ok bool) {
	wanted = binary.LittleEndian.Uint32(head[8:Head])
	return binary.LittleEndian.Uint64(head), wanted, wanted == CRC(head[:8])
}

// Append appends a record of that data.
func Append(b, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, CRC(b[at:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, CRC(data))
}
