package shardsvc

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/shardsvc/oracle"
	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

// someBad: an agent reads on in a lease and meets records that cannot be decoded.
func (s *sim) someBad() {
	t, l := s.someLease()
	if l == nil || t.agent == nil || t.agent.session == 0 {
		return
	}
	var bad []BadRecord
	first := int64(-1)
	for _, p := range l.pieces {
		at := max(p.OrderStart, l.frontier)
		start := p.Start + at - p.OrderStart
		end := min(p.End, p.Start+min(l.end, s.there(l))-p.OrderStart)
		for start < end && len(bad) < 3 {
			from := start + rapid.Int64Range(0, 5).Draw(s.t, "good before it")
			to := from + rapid.Int64Range(1, 4).Draw(s.t, "units of it")
			if from >= end || to > end {
				break
			}
			if first < 0 {
				first = from - p.Start + p.OrderStart
			}
			bad = append(bad, BadRecord{Segment: p.Segment, Start: from, End: to, Column: "c", Kind: "decode", Reason: "no number",
				Value: fmt.Appendf(nil, "%d/%d", p.Segment, from), Key: []byte("k"), Size: 99, Form: formAt(from)})
			s.fail(s.book.Spoil(oracle.Range{Partition: s.src(l.part), Segment: p.Segment, Start: from, End: min(to, end)}))
			start = to
		}
	}
	if len(bad) == 0 {
		return
	}
	token := l.token
	l.frontier, l.end = max(l.frontier, first), first
	t.leases = slices.DeleteFunc(t.leases, func(l *simLease) bool { return l.prefix >= l.end })
	s.send(t.agent, &Message{Failures: []ReadFailure{{Token: token, At: first, Kind: "decode", Message: "no number", When: 7, Bad: bad}}})
}

// someLettersWritten: the master has written the first dead letters.
func (s *sim) someLettersWritten() {
	if n := len(s.w.core.Letters(1, 1<<30)); n > 0 {
		s.step(&LettersWritten{Dataset: 1, Count: rapid.IntRange(0, n).Draw(s.t, "written")}, !s.calm && rapid.IntRange(0, 20).Draw(s.t, "crash") == 20)
	}
}

// formAt is the form of the bad record that begins at start.
func formAt(start int64) string { return []string{"", "json"}[start&1] }

// lettersAgain checks that each dead letter has the bytes of an excluded record, and that
// each excluded record is counted.
func (s *sim) lettersAgain(all []ExcludedInfo) {
	info := s.w.core.Datasets()[0].Bad
	n := int64(0)
	for _, e := range all {
		if e.Kind == badRecord {
			n++
		}
	}
	letters := s.w.core.Letters(1, 1<<30)
	if info.Unwritten != len(letters) || info.Records < int64(len(letters)) || !s.opt.Shuffle && info.Records != n || n > 0 && (len(info.Columns) != 1 || info.Columns[0] != BadColumn{"c", info.Records}) {
		s.t.Fatalf("%d bad records are excluded and %d letters wait, but the core counts %+v", n, len(letters), info)
	}
	for _, k := range letters {
		at := slices.IndexFunc(all, func(e ExcludedInfo) bool {
			return e.Partition == k.Partition && e.Pass == k.Pass && e.Segment == k.Segment && e.Start == k.Start && e.Kind == badRecord
		})
		if at < 0 || !bytes.Equal(k.Value, fmt.Appendf(nil, "%d/%d", k.Segment, k.Start)) || string(k.Key) != "k" || k.Size != 99 || k.Form != formAt(k.Start) || k.Kind != "decode" || k.When != 7 {
			s.t.Fatalf("dead letter %+v matches no excluded record", k)
		}
	}
}

// A share of bad records (max_bad: 0.1%) stops the dataset only after 10,000 records. The
// record that stopped it is neither excluded nor lost.
func TestAShareOfBadRecordsStopsTheDataset(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared, SessionTTL: simTTL})
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 1000, Min: 1000, Max: 1000, Target: Second, MaxBadShare: 1000}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "p"})
	w.step(&PartitionsListed{Dataset: 1})
	w.step(&AddSegments{Partition: 1, Segments: []sources.Segment{{ID: 0, End: 50_000, Sealed: true, Name: "a.tsv"}}, Complete: true})
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 1, WorldSize: 1}}})
	for n := range uint64(11) {
		w.step(&Message{Session: 1, Requests: []LeaseRequest{{ID: n + 1, Worker: 1, Dataset: 1, Count: 1}}})
		i := slices.IndexFunc(w.fx.Replies, func(r Reply) bool { return r.Kind == ReplyGrant })
		g := w.fx.Replies[i]
		w.step(&Message{Session: 1, Failures: []ReadFailure{{Token: g.Token, At: g.Start + 5, Kind: "decode", When: 7,
			Bad: []BadRecord{{Start: g.Start + 5, End: g.Start + 6, Column: "c", Reason: "no number", Value: []byte("x")}}}}})
	}
	d := w.core.Datasets()[0]
	if d.State != "failed" || !strings.Contains(d.Reason, "11 records are bad, and max_bad is 0.1% of 10000 (column c 11)") || !strings.Contains(d.Reason, "a.tsv at offset ") {
		t.Errorf("%s: %s", d.State, d.Reason)
	}
	if c := d.Counts; d.Bad.Records != 10 || c.Excluded != 10 || len(w.core.Letters(1, 100)) != 10 || c.Leased+c.Pending+c.Acked+c.Excluded != c.Planned {
		t.Errorf("%+v", d)
	}
	w.restart()
	if again := w.core.Datasets()[0]; fmt.Sprint(again.Bad) != fmt.Sprint(d.Bad) || again.Reason != d.Reason || len(w.core.Letters(1, 100)) != 10 {
		t.Errorf("after a restart %+v, before %+v", again, d)
	}
	w.step(&LettersWritten{Dataset: 1, Count: 4})
	w.restart()
	if n := len(w.core.Letters(1, 100)); n != 6 {
		t.Errorf("%d letters wait after 4 of 10 were written, want 6", n)
	}
}

// Letters of rows that could not be read have no bytes, and still take memory while they wait.
func TestLettersWithoutBytesCountTowardTheLimit(t *testing.T) {
	d := &dataset{}
	reason := strings.Repeat("r", maxBadText)
	n := 0
	for {
		if why, _ := d.tooManyBad("c"); why != "" {
			break
		}
		if n > maxLetterBytes/maxBadText {
			t.Fatalf("%d letters wait, and the dataset has not been stopped by their limit of memory", n)
		}
		d.bad.add(Letter{BadRecord: BadRecord{Reason: reason, Size: -1}})
		n++
	}
	if why, _ := d.tooManyBad("c"); !strings.Contains(why, "dead letters wait to be written and take 64 MiB") {
		t.Error(why)
	}
	for i := range d.bad.letters {
		d.bad.bytes -= d.bad.letters[i].bytes()
	}
	if d.bad.bytes != 0 {
		t.Errorf("all letters are gone, but %d bytes are still counted for them", d.bad.bytes)
	}
}

// A higher max_bad does not help while letters cannot be written. So the reason does not name it.
func TestLettersThatCannotBeWrittenStopTheDatasetWithTheirOwnWayOut(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Shared, SessionTTL: simTTL})
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 1000, Min: 1000, Max: 1000, Target: Second}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "p"})
	w.step(&PartitionsListed{Dataset: 1})
	w.step(&AddSegments{Partition: 1, Segments: []sources.Segment{{ID: 0, End: 5000, Sealed: true, Name: "a.tsv"}}, Complete: true})
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 1, WorldSize: 1}},
		Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1, Count: 1}}})
	i := slices.IndexFunc(w.fx.Replies, func(r Reply) bool { return r.Kind == ReplyGrant })
	token := w.fx.Replies[i].Token
	w.core.dataset(1).bad.bytes = maxLetterBytes + 1
	w.step(&Message{Session: 1, Failures: []ReadFailure{{Token: token, At: 5, Kind: "decode", When: 7,
		Bad: []BadRecord{{Start: 5, End: 6, Column: "c", Reason: "no number", Value: []byte("x")}}}}})
	d := w.core.Datasets()[0]
	if d.State != "failed" || !strings.Contains(d.Reason, "dead letters wait to be written and take 64 MiB") || strings.Contains(d.Reason, "max_bad") ||
		!strings.HasSuffix(d.Reason, "see in the master's log why they cannot be written, wait until they are and run `headrace dataset resume d`") {
		t.Errorf("%s: %s", d.State, d.Reason)
	}
}
