package pulsar

import (
	"fmt"

	"github.com/headrace/headrace/sources"
)

// A position in a ledger is an entry and the number of a message in it. A producer's send
// makes one entry, with one message or a batch of them. Both numbers are packed into one
// offset, so that offsets have the order of messages:
//
//	entry 7 with messages 0, 1, 2: offsets 7<<20, 7<<20+1, 7<<20+2; the next is 8<<20
const indexBits = sources.EntryBits

// at returns the offset of a message of an entry.
func at(entry int64, index int32) int64 { return entry<<indexBits | int64(index) }

// entryOf returns the entry of an offset.
func entryOf(offset int64) int64 { return offset >> indexBits }

// A segment is a ledger or a piece of one. A dataset with an end may end inside a ledger; if
// the ledger is listed again later, its entries after that end are another segment. The
// number of a segment comes from the number of its ledger. So segments have the order of
// ledgers, and their numbers do not depend on who lists them or what was deleted before:
//
//	ledger 5 is segment 80; entries that were produced after its listed end are segment 81
const (
	pieceBits = 4
	lastPiece = 1<<pieceBits - 1
)

func segmentOf(ledger int64) int64 { return ledger << pieceBits }
func ledgerOf(segment int64) int64 { return segment >> pieceBits }

// position returns the position of an offset in a ledger.
func position(ledger, offset int64) sources.Position {
	return sources.Position{Segment: segmentOf(ledger), Offset: offset}
}

func ledgerName(p partition, ledger int64) string { return fmt.Sprintf("%s ledger %d", p, ledger) }
