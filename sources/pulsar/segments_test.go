package pulsar

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// ledgers returns a layout. Each ledger is given by its number and its entries; the last one is open.
func ledgers(all ...[2]int64) *layout {
	l := &layout{}
	for _, g := range all {
		l.Ledgers = append(l.Ledgers, ledgerInfo{Ledger: g[0], Entries: g[1]})
	}
	return l
}

func emptied(ledger int64, l *layout) *layout {
	l.emptied = append(l.emptied, segmentOf(ledger))
	return l
}

func TestLedgersOfLiveInputAreSegmentsThatRollOverAndVanish(t *testing.T) {
	s := &Source{o: Options{End: End{At: brokers.Never}}}
	p := partition{topic: "public/default/x", created: 1}
	for _, one := range []struct {
		name string
		now  *layout
		want string
	}{
		{"a beginning in the middle", ledgers([2]int64{3, 10}, [2]int64{7, 5}), "[3: 4..10 true][7: 0..5 false]"},
		{"the open one grows", ledgers([2]int64{3, 10}, [2]int64{7, 9}), "[3: 4..10 true][7: 0..9 false]"},
		{"it is sealed, and empty ones are left out", ledgers([2]int64{3, 10}, [2]int64{7, 12}, [2]int64{8, 0}, [2]int64{9, 0}), "[3: 4..10 true][7: 0..12 true][9: 0..0 false]"},
		{"what was sealed stays when it is deleted", ledgers([2]int64{9, 2}), "[3: 4..10 true][7: 0..12 true][9: 0..2 false]"},
		{"what was open is gone when it is deleted", ledgers([2]int64{20, 1}, [2]int64{21, 3}), "[3: 4..10 true][7: 0..12 true][20: 0..1 true][21: 0..3 false]"},
		{"one that held no entry is sealed as it was", emptied(21, ledgers([2]int64{30, 1})), "[3: 4..10 true][7: 0..12 true][20: 0..1 true][21: 0..3 true][30: 0..1 false]"},
	} {
		all, err := s.extend(p, one.now, s.listed[p.id()], position(3, at(4, 0)), one.now.head())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, g := range all {
			got += fmt.Sprintf("[%d: %d..%d %v]", ledgerOf(g.ID), entryOf(g.Start), entryOf(g.End), g.Sealed)
		}
		if got != one.want {
			t.Errorf("%s: %s, want %s", one.name, got, one.want)
		}
		s.listed = map[sources.PartitionID][]sources.Segment{p.id(): all}
	}
}

func TestAnOffsetHoldsEntryAndMessage(t *testing.T) {
	for _, one := range []struct {
		entry int64
		index int32
	}{{0, 0}, {7, 2}, {1 << 40, 1<<indexBits - 1}} {
		o := at(one.entry, one.index)
		if entryOf(o) != one.entry || o-at(one.entry, 0) != int64(one.index) || at(one.entry+1, 0) <= o {
			t.Errorf("entry %d, message %d is offset %d", one.entry, one.index, o)
		}
	}
	for text, ok := range map[string]bool{"12:500": true, "12:500:3": true, "12": false, "-1:2": false, "1:2:1048576": false, "a:b": false} {
		if _, err := parseID(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
