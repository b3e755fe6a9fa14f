package files

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/headrace/headrace/internal/tfrecord"
)

// Protobuf's delimited form: each message is written after its length, a varint (Java's
// writeDelimitedTo, Go's protodelim, C++'s SerializeDelimitedToOstream). There are no
// checksums and no marks, so only a walk from the file's beginning finds where records begin:
// listing notes places in the locators, as for TFRecord.

// maxMessage is what Protobuf allows.
const maxMessage = math.MaxInt32

// delimited frames the message that begins at buf[s] with its length.
func (fr *framer) delimited(buf []byte, s int) (value, next int, st state) {
	length, head := binary.Uvarint(buf[s:])
	switch {
	case head == 0 && len(buf)-s < binary.MaxVarintLen64:
		return 0, 0, cut
	case head <= 0:
		fr.wrong = "no length of a message begins here: the file is damaged, or its messages are not written with their lengths before them (Protobuf's delimited form)"
		return 0, 0, damaged
	case length > maxMessage:
		fr.wrong = fmt.Sprintf("the message that begins here has %d bytes by its length, and Protobuf allows 2 GiB: the file is damaged, or its messages are not written with their lengths before them (Protobuf's delimited form)", length)
		return 0, 0, damaged
	case length > uint64(len(buf)-s-head):
		return 0, 0, cut
	}
	value = s + head + int(length)
	return value, value, complete
}

// head is how many bytes of a complete record come before its value.
func (fr *framer) head(buf []byte, s int) int {
	switch fr.framing.Kind {
	case TFRecord:
		return tfrecord.Head
	case Delimited:
		_, n := binary.Uvarint(buf[s:])
		return n
	}
	return 0
}
