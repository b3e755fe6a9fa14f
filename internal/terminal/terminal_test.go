package terminal

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestTablesAlignAndClip(t *testing.T) {
	tb := NewTable("NAME", "SIZE>", "WHY")
	tb.Row("a", "1", "x")
	tb.Row("größer", "1,000", "")
	var b strings.Builder
	tb.Write(&b)
	want := "NAME     SIZE  WHY\na           1  x\ngrößer  1,000\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if ClipMiddle("größer Wert", 8) != "gr...ert" || ClipMiddle("größer", 6) != "größer" {
		t.Error(ClipMiddle("größer Wert", 8), ClipMiddle("größer", 6))
	}
	if Clip("größer", 5) != "gr..." {
		t.Error(Clip("größer", 5))
	}
}

func TestAmountsReadWell(t *testing.T) {
	for _, tc := range []struct {
		n    int64
		unit string
		want string
	}{{0, "bytes", "0 B"}, {1023, "bytes", "1023 B"}, {1536, "bytes", "1.5 KiB"}, {5 << 40, "bytes", "5.0 TiB"}, {1234567, "records", "1,234,567"}, {-1000, "records", "-1,000"}} {
		if got := Amount(tc.n, tc.unit); got != tc.want {
			t.Errorf("amount(%d, %s) = %s, want %s", tc.n, tc.unit, got, tc.want)
		}
	}
	if Bar(1, 2, 4) != "[##..]" || Bar(0, 0, 4) != "[....]" || Bar(9, 2, 4) != "[####]" {
		t.Error(Bar(1, 2, 4), Bar(0, 0, 4), Bar(9, 2, 4))
	}
}

func TestNoControlByteOfARecordReachesTheTerminal(t *testing.T) {
	if got := Cell([]any{"a\x1b[2J\u009b2J", nil, 1.5, int64(3)}); got != "[a?[2J?2J - 1.5 3]" {
		t.Errorf("got %v, want %v", got, "[a?[2J?2J - 1.5 3]")
	}
}

// full is a disk without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestOutputThatCannotBeWrittenIsAnErrorInEveryForm(t *testing.T) {
	for _, form := range []string{"table", "json", "yaml"} {
		err := Write(full{}, form, map[string]int{"a": 1}, func(w io.Writer) {
			for i := range 3 {
				fmt.Fprintln(w, i)
			}
		})
		if err == nil || !strings.Contains(err.Error(), errFull.Error()) {
			t.Errorf("%s: %v, want %v", form, err, errFull)
		}
	}
}
