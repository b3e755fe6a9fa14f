package pulsar

import (
	"fmt"

	"github.com/headrace/headrace/sources"
)

// A position inside a ledger is an entry and the number of a message in it. An entry
// is what one send of a producer became: one message, or a batch of many. Both are
// packed into one offset, so that offsets order as messages do:
//
//	entry 7 with messages 0, 1, 2: offsets 7<<20, 7<<20+1, 7<<20+2; the next is 8<<20
const indexBits = sources.EntryBits

// at is the offset of a message of an entry.
func at(entry int64, index int32) int64 { return entry<<indexBits | int64(index) }

// entryOf is the entry that an offset lies in.
func entryOf(offset int64) int64 { return offset >> indexBits }

// A segment is a ledger, or a piece of one: a bounded dataset ends inside a ledger,
// and what is produced behind that end is another segment if it is listed later. Its
// number comes from the ledger's, which orders the ledgers of a topic and is the same
// for everybody who lists them, whatever was trimmed before:
//
//	ledger 5: segment 80; what was produced behind its listed end: 81
const (
	pieceBits = 4
	lastPiece = 1<<pieceBits - 1
)

func segmentOf(ledger int64) int64 { return ledger << pieceBits }
func ledgerOf(segment int64) int64 { return segment >> pieceBits }

// position is an offset in a ledger.
func position(ledger, offset int64) sources.Position {
	return sources.Position{Segment: segmentOf(ledger), Offset: offset}
}

func ledgerName(p partition, ledger int64) string { return fmt.Sprintf("%s ledger %d", p, ledger) }
