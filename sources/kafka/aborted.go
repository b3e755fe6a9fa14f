package kafka

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// aborted knows which producers are inside an aborted transaction, while the batches of one
// answer are read in order. The answer lists the first offset of each aborted transaction;
// a control record ends it. So the records that a producer wrote between two aborted
// transactions, or without a transaction, are kept.
type aborted struct {
	list []abortedTxn // those that have not begun yet, by first offset
	open map[int64]bool
}

func newAborted(list []abortedTxn) aborted {
	if len(list) == 0 {
		return aborted{}
	}
	slices.SortFunc(list, func(a, b abortedTxn) int { return cmp.Compare(a.first, b.first) })
	return aborted{list: list, open: map[int64]bool{}}
}

// skip says whether a batch holds no record for us. It must be called for every batch, in
// order.
func (a *aborted) skip(h *header, records []byte) bool {
	for len(a.list) > 0 && a.list[0].first <= h.last() {
		a.open[a.list[0].producer] = true
		a.list = a.list[1:]
	}
	if h.control() {
		if endsInAbort(records) {
			delete(a.open, h.producer)
		}
		return true
	}
	return h.transactional() && a.open[h.producer]
}

// endsInAbort reads a control batch: its one record's key is version, type.
func endsInAbort(records []byte) bool {
	w := records
	var rec raw
	if !rec.read(w) || rec.key[1]-rec.key[0] < 4 {
		return false
	}
	key := w[rec.key[0]:rec.key[1]]
	const abort = 0
	return binary.BigEndian.Uint16(key[2:]) == abort
}
