package shardsvc

import (
	"encoding/binary"
	"fmt"
)

// Keys start with a letter that says what they are (docs/ARCHITECTURE.md, What
// is durable); numbers follow big-endian so that keys sort.
const (
	keyAck         = 'a'
	keyLetter      = 'b'
	keyCut         = 'c'
	keyDataset     = 'd'
	keyFormat      = 'f' // the store's own
	keySegment     = 'g'
	keyJob         = 'j'
	keyTransaction = 'l'
	keyAgent       = 'n'
	keyLeftover    = 'o'
	keyPartition   = 'p'
	keyDropped     = 'q'
	keyRemoved     = 'r'
	keySettled     = 's'
	keyTries       = 't'
	keyRank        = 'w'
	keyExcluded    = 'x'
)

var be = binary.BigEndian

// flip makes signed numbers sort as unsigned ones.
func flip(x int64) uint64   { return uint64(x) ^ 1<<63 }
func unflip(x uint64) int64 { return int64(x ^ 1<<63) }

func appendNumbers(b []byte, letter byte, numbers ...uint32) []byte {
	b = append(b, letter)
	for _, n := range numbers {
		b = be.AppendUint32(b, n)
	}
	return b
}

func appendRangeKey(b []byte, letter byte, ds, part, pass uint32, segment, start int64) []byte {
	b = appendNumbers(b, letter, ds, part, pass)
	b = be.AppendUint64(b, flip(segment))
	return be.AppendUint64(b, flip(start))
}

// key is a decoded key; which fields are set depends on its letter.
type key struct {
	letter         byte
	ds, part, pass uint32
	rank           uint32
	cut            uint64
	segment, start int64
	name           string
}

func decodeKey(b []byte) (key, error) {
	if len(b) == 0 {
		return key{}, fmt.Errorf("stored key is empty")
	}
	k := key{letter: b[0]}
	d := decoder{b: b[1:]}
	switch k.letter {
	case keyJob, keyFormat:
	case keyDataset, keyLeftover:
		k.ds = d.fixed32()
	case keyPartition:
		k.ds, k.part = d.fixed32(), d.fixed32()
	case keySegment:
		k.ds, k.part, k.segment = d.fixed32(), d.fixed32(), unflip(d.fixed64())
	case keySettled:
		k.ds, k.part, k.pass = d.fixed32(), d.fixed32(), d.fixed32()
	case keyAck, keyTries, keyExcluded, keyLetter, keyDropped:
		k.ds, k.part, k.pass = d.fixed32(), d.fixed32(), d.fixed32()
		k.segment, k.start = unflip(d.fixed64()), unflip(d.fixed64())
	case keyCut, keyRemoved:
		k.cut = d.fixed64()
	case keyRank:
		k.rank = d.fixed32()
	case keyAgent:
		k.name, d.b = string(d.b), nil
	case keyTransaction:
		k.ds = d.fixed32()
		k.name, d.b = string(d.b), nil
	default:
		return k, fmt.Errorf("stored key %x: unknown kind %q: was the state written by another version?", b, k.letter)
	}
	if err := d.done(); err != nil {
		return k, fmt.Errorf("stored key %x: %w", b, err)
	}
	return k, nil
}

func (k key) String() string {
	switch k.letter {
	case keyJob:
		return "job"
	case keyDataset:
		return fmt.Sprintf("dataset %d", k.ds)
	case keyLeftover:
		return fmt.Sprintf("removed dataset %d", k.ds)
	case keyCut:
		return fmt.Sprintf("cut %016x", k.cut)
	case keyRemoved:
		return fmt.Sprintf("removed cut %016x", k.cut)
	case keyRank:
		return fmt.Sprintf("rank %d", k.rank)
	case keyAgent:
		return fmt.Sprintf("agent %q", k.name)
	case keyTransaction:
		return fmt.Sprintf("transaction %q of dataset %d", k.name, k.ds)
	}
	return fmt.Sprintf("%q of dataset %d partition %d pass %d segment %d start %d", k.letter, k.ds, k.part, k.pass, k.segment, k.start)
}
