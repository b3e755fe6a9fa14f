package deadletter

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func letter(offset int64, value string) Letter {
	l := Letter{Dataset: "d", Partition: "p", Name: "bad.tsv", Offset: offset, End: offset + 9, Value: []byte(value), Size: int64(len(value)), Column: "price", Kind: "decode", Reason: "no number"}
	l.Fill(1_700_000_000_123)
	return l
}

func TestALetterThatWasWrittenTwiceIsReadOnce(t *testing.T) {
	r := Reading{Dataset: "d"}
	if err := r.Add(nil); err != nil || r.All == nil {
		t.Errorf("%v, %v: without a letter, the list must be empty and not null in JSON", r.All, err)
	}
	lines := [][]byte{line(t, 3, "a"), line(t, 7, "b"), line(t, 3, "a")}
	if err := errors.Join(r.Add(lines[:2]), r.Add(lines[1:])); err != nil || len(r.All) != 2 || r.All[0].Offset != 3 || r.All[1].Offset != 7 {
		t.Errorf("%+v, %v", r.All, err)
	}
	if err := r.Add([][]byte{[]byte("{}\n")}); err == nil || !strings.Contains(err.Error(), "a dead letter of dataset d cannot be read") {
		t.Errorf("got the error %v, want one with %q", err, "a dead letter of dataset d cannot be read")
	}
}

func TestLettersAreChosenByTheirIDs(t *testing.T) {
	all := []Letter{letter(3, "a"), letter(7, "b")}
	some, err := Choose(all, "d", []string{"d/p/0/0/7"})
	if err != nil || len(some) != 1 || some[0].Offset != 7 {
		t.Errorf("%+v, %v", some, err)
	}
	if _, err := Choose(all, "d", []string{"d/p/0/0/3", "d/p/0/0/4"}); err == nil || !strings.Contains(err.Error(), "d/p/0/0/4") {
		t.Errorf("got the error %v, want one with %q", err, "d/p/0/0/4")
	}
}

// A replay sends exactly the bytes of the record, so a letter without all of its bytes cannot be replayed.
func TestOnlyLettersWithAllOfTheirBytesAreReplayed(t *testing.T) {
	whole, cut, row := letter(3, "a"), letter(7, "b"), letter(9, "")
	cut.Size, row.Size = 100, -1
	for _, c := range []struct {
		all []Letter
		why string
	}{{[]Letter{whole}, ""}, {[]Letter{whole, cut}, "only the first 1 are kept"}, {[]Letter{row, whole}, "row 9 of bad.tsv"}} {
		switch err := Replayable(c.all); {
		case c.why == "" && err != nil, c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%v, want %q", err, c.why)
		}
	}
}

func TestASecondReplayAddsNothing(t *testing.T) {
	all := []Letter{letter(3, "a"), letter(7, "b"), letter(9, "c")}
	there := map[string]string{}
	push := func(transaction string, l *Letter) (bool, error) {
		_, already := there[transaction]
		there[transaction] = string(l.Value)
		return already, nil
	}
	first, second := Replayed{}, Replayed{}
	if err := errors.Join(first.Replay(all[:2], push), second.Replay(all, push)); err != nil {
		t.Fatal(err)
	}
	if first != (Replayed{Records: 2}) || second != (Replayed{Records: 1, Already: 2}) || len(there) != 3 {
		t.Errorf("%+v, then %+v; %v", first, second, there)
	}
	broken := errors.New("the master is gone")
	tries := 0
	err := (&Replayed{}).Replay(all, func(string, *Letter) (bool, error) { tries++; return false, broken })
	if !errors.Is(err, broken) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

func TestALetterIsShownAsTextIfItIsText(t *testing.T) {
	text, bytes := letter(3, "a\tb\r\n"), letter(7, "a\x00")
	whole := letter(9, "")
	whole.Column, whole.Size = "", -1
	var b strings.Builder
	for _, l := range []Letter{text, bytes, whole} {
		l.Write(&b)
	}
	for _, want := range []string{"a\tb\n", `"a\x00"` + "\n", "pass 1, offset 3 to 12", "column    (record)", "none: nothing of the row is kept"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
	b.Reset()
	WriteList(&b, []Letter{text, whole})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !slices.Contains(strings.Fields(lines[1]), "5") || !slices.Contains(strings.Fields(lines[2]), "-") {
		t.Errorf("%s", &b)
	}
}

// A dataset that was deleted and applied again numbers its segments from 0 again, so it has letters with the
// ids of the first dataset. They are other records.
func TestALetterOfADatasetThatWasAppliedAgainIsNoRepeat(t *testing.T) {
	var lines [][]byte
	for _, c := range []struct{ name, value, reason string }{
		{"old.csv", "label,x", "no number"}, {"new.csv", "1;2", "too few fields"}, {"new.csv", "1;2", "no such field"},
	} {
		l := letter(0, c.value)
		l.Name, l.Reason = c.name, c.reason
		b, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, b)
	}
	r := Reading{Dataset: "d"}
	if err := r.Add(lines); err != nil || len(r.All) != 2 || r.All[0].Name != "old.csv" || r.All[1].Name != "new.csv" || r.All[1].Reason != "no such field" {
		t.Fatalf("%+v, %v: want the letter of each file, with its newest reason", r.All, err)
	}
	some, err := Choose(r.All, "d", []string{"d/p/0/0/0"})
	if err != nil || len(some) != 1 || string(some[0].Value) != "1;2" {
		t.Errorf("the id chooses %+v, %v; want the newest letter", some, err)
	}
	there := map[string]string{}
	push := func(transaction string, l *Letter) (bool, error) {
		_, already := there[transaction]
		there[transaction] = string(l.Value)
		return already, nil
	}
	before, both, again := Replayed{}, Replayed{}, Replayed{}
	first := Reading{Dataset: "d"} // when only the first dataset had letters
	if err := errors.Join(first.Add(lines[:1]), before.Replay(first.All, push), both.Replay(r.All, push), again.Replay(r.All, push)); err != nil {
		t.Fatal(err)
	}
	if before != (Replayed{Records: 1}) || both != (Replayed{Records: 1, Already: 1}) || again != (Replayed{Already: 2}) {
		t.Errorf("%+v, %+v, %+v: each record must be pushed once", before, both, again)
	}
}
