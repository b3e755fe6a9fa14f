package shardsvc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// Land appends the segments of one pushed transaction to partitions of a dataset and
// remembers the transaction's id. Both are puts of one Step, so the store has either all
// of them or nothing: a listing by a poll could not say after a crash which segments it
// had appended already. A transaction that is known changes nothing (Landed).
//
// A transaction is Rejected if one of its partitions is unknown, of another dataset or
// complete. A transaction that was forgotten is Rejected too, if one of its chunks is still
// listed: it would land twice.
type Land struct {
	Dataset     DatasetID
	Transaction string
	Parts       []LandPart // each partition once
	Records     int64
	When        int64 // ms since 1970
	// Forget: transactions that landed before this time, in ms since 1970, are forgotten.
	Forget int64
	// Staged: its chunks were staged at this time or later, in ms since 1970. Those of a
	// transaction were staged before it landed, by the same clock.
	Staged int64
}

// LandPart is what a transaction appends to one partition. The core numbers the
// segments; all of them are sealed.
type LandPart struct {
	Partition PartitionNo
	Segments  []sources.Segment
}

func (*Land) event() {}

// maxTransaction bounds the bytes of an id.
const maxTransaction = 256

// isPushed says whether the partition of an identity has pushed records.
func (o *Options) isPushed(identity string) bool {
	return o.Pushed && o.inputOf(identity) == fromSource
}

// streamOf is the part of an identity that all partitions of one landing share.
func streamOf(identity string) string { return identity[:strings.LastIndexByte(identity, '/')+1] }

// endLostPushed is called for a new partition. A restored cut may have brought partitions of
// another landing before that. Nobody pushes to those any more.
func (lg *ledger) endLostPushed(d *dataset, identity string) {
	if !d.opt.isPushed(identity) {
		return
	}
	for _, p := range d.parts {
		if p.Complete || !d.opt.isPushed(p.identity) || streamOf(p.identity) == streamOf(identity) {
			continue
		}
		lg.complete(p)
		lg.dirtyPartition(p)
		lg.changed(p)
		lg.report(Report{Kind: ReportPushedLost, Dataset: d.id, Partition: p.no})
		if !d.opt.GoOnAfterLoss {
			lg.failDataset(d, lostPushed(p.label()), true)
		}
	}
}

func lostPushed(partition string) string {
	return fmt.Sprintf("the pushed records of partition %s are lost: the master's landing folder or bucket is not that of the checkpoint, or the dataset was deleted and applied again. "+
		"Those that are not in the checkpoint must be pushed again. To go on without them, set `on_loss: continue` in the spec and apply it; or bring the folder back", partition)
}

// pushedAfter returns the chunks of p that a cut does not name. Nobody lists pushed chunks
// a second time, so if the cut's partition replaces p, these chunks follow the cut's. A
// chunk keeps its number if that is above the cut's numbers.
func (p *partition) pushedAfter(q *cut.Partition) (more []sources.Segment) {
	if !p.ds.opt.isPushed(p.identity) {
		return nil
	}
	named, last := map[string]bool{}, int64(-1)
	for i := range q.Segments {
		named[q.Segments[i].Name] = true
		last = q.Segments[i].ID
	}
	for i := range p.Segs {
		s := &p.Segs[i]
		if named[s.Name] || len(s.Locator) == 0 { // without a locator: it is deleted
			continue
		}
		last = max(s.ID, last+1)
		more = append(more, sources.Segment{ID: last, Start: s.Start, End: s.End, Sealed: true, Locator: s.Locator, Name: s.Name})
	}
	return more
}

// landings are the transactions of a dataset that are remembered.
type landings struct {
	byID  map[string]LandedInfo
	order []landed // by When
	// forgot is a time in ms since 1970: transactions that landed then or later are
	// remembered. It never goes back. After a restart it is the time of the first
	// transaction that is remembered.
	forgot int64
}

type landed struct {
	id   string
	when int64
}

// Landed says whether a transaction has landed and is remembered.
func (lg *ledger) Landed(id DatasetID, transaction string) (LandedInfo, bool) {
	d := lg.dataset(id)
	if d == nil {
		return LandedInfo{}, false
	}
	v, ok := d.landings.byID[transaction]
	return v, ok
}

// LandedTransaction is one that is remembered.
type LandedTransaction struct {
	ID string
	LandedInfo
}

// Landings are the transactions of a dataset that are remembered, the oldest first.
func (lg *ledger) Landings(id DatasetID) []LandedTransaction {
	d := lg.dataset(id)
	if d == nil {
		return nil
	}
	all := make([]LandedTransaction, len(d.landings.order))
	for i, l := range d.landings.order {
		all[i] = LandedTransaction{l.id, d.landings.byID[l.id]}
	}
	return all
}

func (lg *ledger) land(e *Land) {
	d := lg.dataset(e.Dataset)
	if d == nil || e.Transaction == "" || len(e.Transaction) > maxTransaction {
		lg.rejected("transaction %q: no dataset %d, or its id is empty or longer than %d bytes", e.Transaction, e.Dataset, maxTransaction)
		return
	}
	if _, known := d.landings.byID[e.Transaction]; known {
		return
	}
	err := lg.canLand(d, e.Parts)
	if err == nil {
		err = d.landedBefore(e)
	}
	if err != nil {
		lg.rejected("transaction %q of dataset %q: %v", e.Transaction, d.name, err)
		return
	}
	for i := range e.Parts {
		p := lg.partition(e.Parts[i].Partition)
		numbered := slices.Clone(e.Parts[i].Segments)
		for j := range numbered {
			numbered[j].ID, numbered[j].Sealed = p.LastSeg+1+int64(j), true
		}
		lg.addSegments(&AddSegments{Partition: p.no, Segments: numbered})
	}
	v := LandedInfo{Records: e.Records, When: e.When}
	if n := len(d.landings.order); n > 0 { // a clock that went back changes no order
		v.When = max(v.When, d.landings.order[n-1].when)
	}
	d.landings.add(e.Transaction, v)
	lg.fx.put(Set, transactionKey(d.id, e.Transaction), (&landedValue{v}).append)
	d.landings.forgot = max(d.landings.forgot, e.Forget)
	for len(d.landings.order) > 1 && d.landings.order[0].when < e.Forget {
		old := d.landings.order[0].id
		d.landings.order = d.landings.order[1:]
		delete(d.landings.byID, old)
		lg.fx.put(Delete, transactionKey(d.id, old), nil)
	}
}

// canLand returns an error if any part of a transaction cannot be appended. Then none is.
func (lg *ledger) canLand(d *dataset, parts []LandPart) error {
	for i := range parts {
		p := lg.partition(parts[i].Partition)
		switch {
		case p == nil || p.ds != d:
			return fmt.Errorf("it has no partition %d", parts[i].Partition)
		case slices.ContainsFunc(parts[:i], func(o LandPart) bool { return o.Partition == p.no }):
			return fmt.Errorf("partition %s is there twice", p.label())
		case p.Complete:
			return fmt.Errorf("partition %s has ended", p.label())
		}
		sum := int64(0)
		for _, s := range parts[i].Segments {
			if s.Start != 0 || s.End <= 0 || !p.Fits(0, sum+s.End) {
				return fmt.Errorf("partition %s: chunk %s of [%d, %d) records does not fit", p.label(), s.Name, s.Start, s.End)
			}
			sum += s.End
		}
	}
	return nil
}

// landedBefore returns an error if the transaction landed before and was forgotten: one of
// its chunks is in the table. It does not find chunks that were deleted since. Only chunks
// that were staged before `forgot` are searched for, which is rare.
func (d *dataset) landedBefore(e *Land) error {
	if e.Staged >= d.landings.forgot || len(e.Parts) == 0 {
		return nil
	}
	named := map[string]bool{}
	for _, p := range e.Parts {
		for i := range p.Segments {
			named[p.Segments[i].Name] = true
		}
	}
	for _, p := range d.parts {
		for i := range p.Segs {
			if name := p.Segs[i].Name; named[name] {
				return fmt.Errorf("chunk %s is visible already: the transaction has landed, longer ago than landing.remember. Do not push its records again", name)
			}
		}
	}
	return nil
}

func (l *landings) add(id string, v LandedInfo) {
	if l.byID == nil {
		l.byID = map[string]LandedInfo{}
	}
	l.byID[id] = v
	l.order = append(l.order, landed{id, v.When})
}

// loadLanded takes the stored transactions, which come in the order of their ids.
func (lg *ledger) loadLanded(all []stored[landedValue]) error {
	slices.SortStableFunc(all, func(a, b stored[landedValue]) int { return cmp.Compare(a.val.When, b.val.When) })
	for _, s := range all {
		d := lg.dataset(s.key.ds)
		if d == nil {
			return fmt.Errorf("stored %s: no such dataset", s.key)
		}
		d.landings.add(s.key.name, s.val.LandedInfo)
		d.landings.forgot = d.landings.order[0].when
	}
	return nil
}

func transactionKey(ds DatasetID, id string) func([]byte) []byte {
	return func(b []byte) []byte { return append(appendNumbers(b, keyTransaction, ds), id...) }
}
