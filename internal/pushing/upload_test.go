package pushing

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/connectors/go/push"
)

// topic is a dataset that keeps the committed records, by transaction.
type topic struct {
	landed  map[string]int64
	order   []string // the transactions in the order of their commits
	sent    []string // the pushed values, committed or not
	old     bool     // the master is of a version without Landed
	failing error    // the error that Commit returns
}

func (d *topic) Landed(_ context.Context, id string) (push.Done, bool, error) {
	if d.old {
		return push.Done{}, false, status.Error(codes.Unimplemented, "no such call")
	}
	n, ok := d.landed[id]
	return push.Done{Records: n, Already: ok}, ok, nil
}

func (d *topic) Begin(id string) Transaction { return &part{d: d, id: id} }

type part struct {
	d  *topic
	id string
	n  int64
}

func (t *part) Push(_ context.Context, r push.Record) error {
	t.n++
	t.d.sent = append(t.d.sent, string(r.Value))
	return nil
}

func (t *part) Commit(context.Context) (push.Done, error) {
	if t.d.failing != nil {
		return push.Done{}, t.d.failing
	}
	if n, ok := t.d.landed[t.id]; ok && t.id != "" {
		return push.Done{Records: n, Already: true}, nil
	}
	if t.d.landed == nil {
		t.d.landed = map[string]int64{}
	}
	t.d.landed[t.id] = t.n
	t.d.order = append(t.d.order, t.id)
	return push.Done{Records: t.n}, nil
}

func TestLinesBecomeTransactions(t *testing.T) {
	for _, c := range []struct {
		name, in string
		u        Upload
		sent     string
		order    []string
		said     Said
	}{
		{"all in one", "a\n\nb\r\nc", Upload{}, "a b c", []string{""}, Said{Transactions: 1, Records: 3}},
		{"parts of two", "a\nb\nc\n", Upload{ID: "x", Rows: 2}, "a b c", []string{"x/0", "x/1"}, Said{Transactions: 2, Records: 3}},
		{"parts that end with the input", "a\nb\n", Upload{ID: "x", Rows: 2}, "a b", []string{"x/0"}, Said{Transactions: 1, Records: 2}},
		{"nothing, with a name", "\n", Upload{ID: "x"}, "", []string{"x"}, Said{Transactions: 1}},
		{"nothing", "", Upload{}, "", nil, Said{}},
	} {
		d, u := &topic{}, c.u
		if err := u.Run(t.Context(), d, strings.NewReader(c.in)); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := strings.Join(d.sent, " "); got != c.sent || !slices.Equal(d.order, c.order) || u.Said != c.said {
			t.Errorf("%s: sent %q in %q, %+v; want %q in %q, %+v", c.name, got, d.order, u.Said, c.sent, c.order, c.said)
		}
	}
}

// A second run sends only the parts that are not visible yet. A master of an older version cannot tell which these
// are, so all lines are sent again, and the commit says that they were there.
func TestASecondRunAddsWhatIsNotVisible(t *testing.T) {
	for _, old := range []bool{false, true} {
		d := &topic{landed: map[string]int64{"x/0": 2}, old: old}
		u := Upload{ID: "x", Rows: 2}
		if err := u.Run(t.Context(), d, strings.NewReader("a\nb\nc\n")); err != nil {
			t.Fatal(err)
		}
		if want := (Said{Transactions: 2, Already: 1, Records: 3}); u.Said != want || !slices.Equal(d.order, []string{"x/1"}) {
			t.Errorf("old %v: %+v, committed %q", old, u.Said, d.order)
		}
		if want := map[bool]string{false: "c", true: "a b c"}[old]; strings.Join(d.sent, " ") != want {
			t.Errorf("older master %v: %q were sent", old, d.sent)
		}
	}
}

// The last part of the first run was not full. Lines that came since belong to that part, and would be taken for visible.
func TestAnInputThatHasGrownIsNotTakenForVisible(t *testing.T) {
	for _, c := range []struct {
		u      Upload
		landed map[string]int64
		want   string
	}{
		{Upload{ID: "x"}, map[string]int64{"x": 3}, `transaction "x" is visible already with 3 records, and the input has 5 lines`},
		{Upload{ID: "x", Rows: 2}, map[string]int64{"x/0": 2, "x/1": 1}, `transaction "x/1" is visible already with 1 records, and the input has 2 lines`},
	} {
		for _, old := range []bool{false, true} {
			d, u := &topic{landed: c.landed, old: old}, c.u
			if err := u.Run(t.Context(), d, strings.NewReader("a\nb\nc\nd\ne\n")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, older master %v: got the error %v, want %s", c.u, old, err, c.want)
			}
			if len(d.order) > 0 {
				t.Errorf("%+v: %q were committed, want nothing after the part that has grown", c.u, d.order)
			}
		}
	}
}

func TestWhatCameInATimeIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, u := &topic{}, Upload{Every: time.Second}
		in, out := io.Pipe()
		go func() {
			for _, line := range []string{"a\nb\n", "c\n"} {
				_, _ = out.Write([]byte(line))
				time.Sleep(1500 * time.Millisecond)
			}
			_ = out.Close()
		}()
		if err := u.Run(t.Context(), d, in); err != nil {
			t.Fatal(err)
		}
		if want := (Said{Transactions: 2, Records: 3}); u.Said != want {
			t.Errorf("%+v, want %+v", u.Said, want)
		}
	})
}

func TestAnInputThatBreaksCommitsNothingMore(t *testing.T) {
	broken := errors.New("the disk is gone")
	d, u := &topic{}, Upload{Rows: 2}
	err := u.Run(t.Context(), d, io.MultiReader(strings.NewReader("a\nb\nc\n"), failing{broken}))
	if !errors.Is(err, broken) || u.Said.Transactions != 1 {
		t.Errorf("%v, %+v", err, u.Said)
	}
	d.failing = errors.New("refused")
	if err := u.Run(t.Context(), d, strings.NewReader("d\ne\n")); !errors.Is(err, d.failing) {
		t.Errorf("got the error %v, want %v", err, d.failing)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestOptionsThatDoNotGoTogetherAreRefused(t *testing.T) {
	for _, u := range []Upload{{ID: "x", Every: time.Second}, {Rows: -1}, {Every: -1}} {
		if u.Check() == nil {
			t.Errorf("%+v was accepted", u)
		}
	}
	if err := (&Upload{ID: "x", Rows: 3}).Check(); err != nil {
		t.Error(err)
	}
}

// The last line of a file may have no line end. It is still a line of its own, and does not join the next file's
// first line.
func TestTheLastLineOfAFileDoesNotRunIntoTheNextFile(t *testing.T) {
	all, err := io.ReadAll(EachWithALineEnd([]io.Reader{strings.NewReader("a\nb"), strings.NewReader("c\n")}))
	if err != nil || string(all) != "a\nb\nc\n\n" {
		t.Errorf("%q, %v", all, err)
	}
}

// The user hears nothing of short waits. A longer wait is reported after two seconds, and then every ten. If there
// is no master, that is reported at once.
func TestAUserIsToldWhyNothingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		k := Waits{To: &b, Master: "127.0.0.1:7800"}
		full := status.Error(codes.ResourceExhausted, "the dataset is full")
		for range 25 { // during 24 seconds
			k.Wait(full)
			time.Sleep(time.Second)
		}
		if n := strings.Count(b.String(), "the dataset is full"); n != 3 {
			t.Errorf("%d reports:\n%s", n, &b)
		}
		b.Reset()
		k.Wait(status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7800: connect: connection refused"`))
		if !strings.Contains(b.String(), "no master answers at 127.0.0.1:7800") {
			t.Errorf("%q", &b)
		}
	})
}
