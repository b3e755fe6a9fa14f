package files

import (
	"encoding/binary"
	"fmt"

	"github.com/headrace/headrace/internal/tfrecord"
)

// The data of a TFRecord may hold whole TFRecords, so a CRC that fits does not prove that a
// record begins there: listing walks from header to header and notes starts in the locators,
// as it does for quoted CSV.

// tfrecord frames the record that begins at buf[s]. Its data is buf[s+tfrecord.Head:value].
func (fr *framer) tfrecord(buf []byte, s int) (value, next int, st state) {
	if len(buf)-s < tfrecord.Head {
		return 0, 0, cut
	}
	length, wanted, ok := tfrecord.Length(buf[s:])
	if !ok {
		fr.wrong = fmt.Sprintf("the CRC of the record's length is %08x and should be %08x: the file is damaged from here on, or is no TFRecord file",
			tfrecord.CRC(buf[s:s+8]), wanted)
		return 0, 0, damaged
	}
	if length > uint64(len(buf)-s) || s+tfrecord.Head+int(length)+tfrecord.Tail > len(buf) {
		return 0, 0, cut
	}
	value = s + tfrecord.Head + int(length)
	return value, value + tfrecord.Tail, complete
}

// tfrecordData checks the CRC of a record's data, which follows it in buf.
func tfrecordData(buf []byte, from, to int) (wrong string) {
	sum, want := tfrecord.CRC(buf[from:to]), binary.LittleEndian.Uint32(buf[to:])
	if sum == want {
		return ""
	}
	return fmt.Sprintf("the CRC of the record's data is %08x and should be %08x: the file is damaged", sum, want)
}
