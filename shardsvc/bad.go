package shardsvc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/line"
)

// badRecords counts the bad records of a dataset that are excluded, and keeps their dead
// letters until these are written. A bad record is excluded like a record that the source
// has lost: it stays settled, whichever cut the job goes back to, and each cut lists it.
type badRecords struct {
	records int64
	columns []BadColumn // by name
	good    int64       // acked records, also of earlier terms
	letters []Letter    // not written yet, in the order in which they came
	bytes   int64       // of those
}

// BadColumn counts the bad records of one column.
type BadColumn struct {
	Column  string // empty: the record as a whole
	Records int64
}

// BadInfo says how many records of a dataset are bad.
type BadInfo struct {
	Records   int64
	Columns   []BadColumn // by name
	Unwritten int         // letters that are not written yet
}

// Letter is one bad record with its bytes. Dataset, partition, pass, segment and Start
// name it: a letter that is written twice has the same name.
type Letter struct {
	Partition       PartitionNo
	Identity, Label string
	Pass            uint32
	SegmentName     string
	When            int64 // ms since 1970
	BadRecord
}

const (
	maxLetterValue = 64 << 10
	maxLetterKey   = 4 << 10
	maxBadText     = 1 << 10
	// maxLetterBytes bounds the letters of a dataset that wait to be written.
	maxLetterBytes = 64 << 20
	// letterBytes is about what a letter takes besides its bytes and texts. The letter of a
	// row that could not be read has only that and its reason.
	letterBytes = 256
	// shareFrom is the number of records from which on a share of bad ones counts.
	// Example: with 0.1%, the eleventh bad record of the first 10,000 stops the dataset.
	shareFrom = 10_000
)

// bytes is about how much memory a waiting letter takes.
func (k *Letter) bytes() int64 {
	return int64(letterBytes + len(k.Value) + len(k.Key) + len(k.Column) + len(k.Kind) + len(k.Reason))
}

func (b *badRecords) info() BadInfo {
	return BadInfo{b.records, slices.Clone(b.columns), len(b.letters)}
}

// count counts an exclusion, if it is a bad record.
func (b *badRecords) count(e *exclusion) {
	if e.kind != badRecord {
		return
	}
	b.records++
	i, found := slices.BinarySearchFunc(b.columns, e.column, func(c BadColumn, name string) int { return strings.Compare(c.Column, name) })
	if !found {
		b.columns = slices.Insert(b.columns, i, BadColumn{Column: e.column})
	}
	b.columns[i].Records++
}

// readBad handles bad records that the holder of l met. From `from` on the lease is pending
// again, and its bad records are excluded. A record that is one too many stops the
// dataset: it stays pending, and so do those after it.
func (lg *ledger) readBad(l *lease, from int64, f *ReadFailure) {
	ps, end := l.pass, l.end
	for i := range f.Bad {
		if b := &f.Bad[i]; ps.Order == nil && b.Segment == l.segment { // the record is there
			lg.growTo(ps.p, line.Place{Segment: l.segment, Offset: min(b.End, end-l.shift)})
		}
	}
	if from < end {
		lg.reportBack(l, from, ReclaimedBadRecord)
	}
	lg.giveBack(l, from, untouched)
	for i := range f.Bad {
		if !lg.excludeBad(ps, from, end, &f.Bad[i], f.When) {
			break
		}
	}
	lg.changed(ps.p)
}

// excludeBad excludes the record that begins at b.Start, if that lies in [from, end). It
// returns false if the dataset has stopped.
func (lg *ledger) excludeBad(ps *pass, from, end int64, b *BadRecord, when int64) (goesOn bool) {
	d := ps.p.ds
	at, to, name := int64(-1), int64(0), ""
	ps.EachPiece(from, end, func(pos int64, s *line.Segment, start, stop int64) {
		if s.ID == b.Segment && start <= b.Start && b.Start < stop && b.Start < b.End {
			at, to, name = pos+b.Start-start, pos+min(b.End, stop)-start, s.Name
		}
	})
	if i, j := ps.pending.Overlap(at, to); at < 0 || i == j {
		return true // it is settled, or was never in this lease
	}
	column, reason := head(b.Column, maxBadText), head(b.Reason, maxBadText)
	if why, way := d.tooManyBad(column); why != "" {
		lg.failDataset(d, fmt.Sprintf("%s; this one is in partition %s pass %d, %s at offset %d: %s; %s and run `headrace dataset resume %s`",
			why, ps.p.label(), ps.n, name, b.Start, reason, way, d.name), false)
		return false
	}
	x := loss{b.Segment, b.Start, b.End, badRecord, reason, when, column}
	if !lg.exclude(ps, at, to, &x) {
		return true
	}
	k := Letter{Partition: ps.p.no, Identity: ps.p.identity, Label: ps.p.label(), Pass: ps.n, SegmentName: name, When: when,
		BadRecord: BadRecord{b.Segment, b.Start, b.End, column, head(b.Kind, 64), reason,
			slices.Clone(b.Value[:min(len(b.Value), maxLetterValue)]), slices.Clone(b.Key[:min(len(b.Key), maxLetterKey)]), sizeOf(b), head(b.Form, 64)}}
	d.bad.add(k)
	v := letterValue{k.End, k.When, k.Size, k.Column, k.Kind, k.Reason, k.Value, k.Key, k.Form}
	lg.fx.put(Set, d.letterKey(&k), v.append)
	if b.Kind == BadCrash {
		lg.clearSuspects(ps)
	}
	return true
}

// sizeOf is the size of the whole value; -1: there is no value, for example of a row of
// columns that is too large to be read.
func sizeOf(b *BadRecord) int64 {
	if b.Size < 0 && len(b.Value) == 0 {
		return -1
	}
	return max(b.Size, int64(len(b.Value)))
}

func (b *badRecords) add(k Letter) {
	b.letters = append(b.letters, k)
	b.bytes += k.bytes()
}

func (d *dataset) letterKey(k *Letter) func([]byte) []byte {
	part, pass, segment, start := k.Partition, k.Pass, k.Segment, k.Start
	return func(b []byte) []byte { return appendRangeKey(b, keyLetter, d.id, part, pass, segment, start) }
}

// head is the beginning of a text, of at most n bytes.
func head(text string, n int) string { return strings.ToValidUTF8(text[:min(len(text), n)], "") }

// tooManyBad says why one more bad record stops the dataset, and the way out; empty: it does
// not stop.
func (d *dataset) tooManyBad(column string) (why, way string) {
	b, limit := &d.bad, ""
	n := b.records + 1
	switch {
	case d.opt.MaxBad > 0 && n > d.opt.MaxBad:
		limit = fmt.Sprintf("max_bad is %d", d.opt.MaxBad)
	case d.opt.MaxBadShare > 0 && n*1e6 > d.opt.MaxBadShare*max(b.good+n, shareFrom):
		limit = fmt.Sprintf("max_bad is %g%% of %d", float64(d.opt.MaxBadShare)/1e4, max(b.good+n, shareFrom))
	case b.bytes > maxLetterBytes:
		return fmt.Sprintf("%d dead letters wait to be written and take %d MiB", len(b.letters), b.bytes>>20),
			"see in the master's log why they cannot be written, wait until they are"
	default:
		return "", ""
	}
	with := badRecords{columns: slices.Clone(b.columns)}
	with.count(&exclusion{kind: badRecord, column: column})
	each := make([]string, len(with.columns))
	for i, c := range with.columns {
		name := "column " + c.Column
		if c.Column == "" {
			name = "the record as a whole"
		}
		each[i] = fmt.Sprintf("%s %d", name, c.Records)
	}
	return fmt.Sprintf("%d records are bad, and %s (%s)", n, limit, strings.Join(each, ", ")),
		"correct the input, or raise max_bad in the spec, apply it"
}

// lettersWritten forgets letters that are durable elsewhere.
func (lg *ledger) lettersWritten(e *LettersWritten) {
	d := lg.dataset(e.Dataset)
	if d == nil {
		return // it was deleted meanwhile
	}
	b := &d.bad
	if e.Count < 0 || e.Count > len(b.letters) {
		lg.rejected("dataset %q: %d dead letters are said to be written, %d wait", d.name, e.Count, len(b.letters))
		return
	}
	for i := range b.letters[:e.Count] {
		k := &b.letters[i]
		b.bytes -= k.bytes()
		lg.fx.put(Delete, d.letterKey(k), nil)
	}
	b.letters = slices.Delete(b.letters, 0, e.Count)
}

// Letters are the first dead letters of a dataset that are not written yet, at most max.
func (lg *ledger) Letters(id DatasetID, max int) []Letter {
	d := lg.dataset(id)
	if d == nil {
		return nil
	}
	return slices.Clone(d.bad.letters[:min(max, len(d.bad.letters))])
}

// loadLetters takes the `b` keys, after everything else of the datasets is loaded.
func (lg *ledger) loadLetters(all []stored[letterValue]) error {
	for _, s := range all {
		p, v := lg.partition(s.key.part), &s.val
		if p == nil || p.ds.id != s.key.ds || s.key.start >= v.end {
			return fmt.Errorf("stored %s: no such partition, or nothing in it", s.key)
		}
		k := Letter{Partition: p.no, Identity: p.identity, Label: p.label(), Pass: s.key.pass, When: v.when,
			BadRecord: BadRecord{s.key.segment, s.key.start, v.end, v.column, v.kind, v.reason, v.value, v.key, v.size, v.form}}
		if i := p.SegByID(s.key.segment); i >= 0 {
			k.SegmentName = p.Segs[i].Name
		}
		p.ds.bad.add(k)
	}
	for _, p := range lg.parts {
		if p != nil {
			p.ds.bad.good += p.tally().Rows
		}
	}
	return nil
}
