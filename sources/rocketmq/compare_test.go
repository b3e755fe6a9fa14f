package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// looked does what the master does once a second: it asks for the heads, then for the replaced ranges. It
// asks again until the broker answers.
func looked(t *testing.T, s *Source) []sources.Replaced {
	t.Helper()
	return lookedAt(t, s, []sources.PartitionID{fakeQueue})
}

func lookedAt(t *testing.T, s *Source, ids []sources.PartitionID) (replaced []sources.Replaced) {
	t.Helper()
	answered(t, func() (err error) {
		bounded(t, s, ids)
		s.compareAgain = time.Time{} // compare at once
		replaced, err = s.Compare(t.Context())
		return err
	})
	return replaced
}

func bounded(t *testing.T, s *Source, ids []sources.PartitionID) {
	t.Helper()
	answered(t, func() error {
		bounds, err := s.Bounds(t.Context(), ids)
		for _, b := range bounds {
			err = cmp.Or(err, b.Err)
		}
		return err
	})
}

// answered asks until the broker answers.
func answered(t *testing.T, ask func() error) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		err := ask()
		if err == nil {
			return
		}
		if _, again := errors.AsType[*sources.Temporary](err); !again || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A broker has lost messages and has others at their offsets. When the master looks next, the head may be
// lower, the same or higher.
func TestMessagesThatHaveThePlaceOfLostOnesAreTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		happens func(f *fake)
		want    string // the replaced range, or nothing
		after   func(f *fake)
		then    string // the replaced range at the look after that
	}{
		{"nothing", func(f *fake) { f.write("a", 50) }, "", nil, ""},
		{"lost and refilled, started again", func(f *fake) { f.lose(240); f.restarted(); f.write("bb", 100) }, "[200 300]", nil, ""},
		{"lost and refilled to where it was, started again", func(f *fake) { f.lose(240); f.restarted(); f.write("bb", 60) }, "[200 300]", nil, ""},
		{"made again and refilled, without another connection", func(f *fake) { f.lose(0); f.write("bb", 301) }, "[35 300]", nil, ""},
		{"lost, refilled later", func(f *fake) { f.lose(240); f.restarted() }, "", func(f *fake) { f.write("bb", 100) }, "[200 300]"},
		{"lost, refilled later to where it was", func(f *fake) { f.lose(240) }, "", func(f *fake) { f.write("bb", 60) }, "[200 300]"},
		{"lost below an earlier head, refilled partly", func(f *fake) { f.lose(150); f.write("bb", 60) }, "[100 300]", nil, ""},
		{"started again, and shows all messages only later", func(f *fake) { f.lose(240); f.restarted() }, "", func(f *fake) { f.write("a", 60) }, ""},
		{"started again", func(f *fake) { f.restarted() }, "", func(f *fake) { f.write("a", 10) }, ""},
		{"uploaded by tiered storage, which writes another place", func(f *fake) { f.set(f.uploaded); f.write("a", 10) }, "", nil, ""},
		{"others of the same times and bodies", func(f *fake) {
			f.set(func() { f.master().log[299].properties = "UNIQ_KEY\x01other\x02" })
			f.write("a", 10)
		}, "[200 300]", nil, ""},
		{"others of another producer", func(f *fake) { f.set(func() { f.master().log[299].host = 7 }); f.write("a", 10) }, "[200 300]", nil, ""},
		{"all that was there was deleted by retention", func(f *fake) { f.write("a", 10); f.set(func() { f.master().low = 305 }) }, "", func(f *fake) { f.write("a", 10) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, 1)
			s := f.source(f.options())
			looks := func(when, want string) {
				t.Helper()
				got := ""
				for _, r := range looked(t, s) {
					if r.Partition != fakeQueue {
						t.Errorf("the replaced range is of queue %s", r.Partition)
					}
					got += fmt.Sprint([]int64{r.From, r.Before})
				}
				if got != want {
					t.Errorf("%s: %q was replaced, want %q", when, got, want)
				}
			}
			for range 3 { // the heads are 100, 200, 300
				f.write("a", 100)
				looks("before", "")
			}
			looks("while nothing came", "")
			c.happens(f)
			looks("then", c.want)
			if c.after != nil {
				c.after(f)
				looks("later", c.then)
			}
			looks("at last", "")
			f.write("c", 5)
			looks("as it goes on", "")
		})
	}
}

// The source remembers several messages. With only the last one, it could not say how many are lost.
func TestAfterOneLookAboutAsManyMessagesAreNamedAsWereLost(t *testing.T) {
	for _, c := range []struct {
		lost int   // how many of 1,000 messages
		gone int64 // messages below this offset are removed, although the broker says that the queue begins at 0
		from int64
	}{{1, 0, 999}, {10, 0, 984}, {300, 0, 488}, {1000, 0, 487}, {1000, 900, 935}, {1000, 999, 999}} {
		f := newFake(t, 1)
		s := f.source(f.options())
		f.write("a", 1000)
		f.set(func() { f.master().gone = c.gone })
		looked(t, s)
		f.lose(1000 - c.lost)
		f.write("bb", c.lost+5)
		f.restarted()
		got := looked(t, s)
		if len(got) != 1 || got[0] != (sources.Replaced{Partition: fakeQueue, From: c.from, Before: 1000}) {
			t.Errorf("%d messages were lost and %d removed, but %+v is reported, want [%d, 1000)", c.lost, c.gone, got, c.from)
		}
	}
}

// If a head stays low, the messages above it are lost, even if no other messages have come.
func TestAHeadThatStaysLowIsToldByTheSourceBeforeTheMasterBelievesIt(t *testing.T) {
	f := newFake(t, 1)
	o := f.options()
	o.fellWithin = time.Nanosecond
	s := f.source(o)
	f.write("a", 100)
	looked(t, s)
	f.write("a", 100)
	looked(t, s)
	f.lose(150)
	got := looked(t, s)
	if len(got) != 1 || got[0] != (sources.Replaced{Partition: fakeQueue, From: 150, Before: 200}) {
		t.Errorf("%+v is reported as replaced, want [150, 200)", got)
	}
	if f.write("bb", 100); len(looked(t, s)) > 0 {
		t.Error("the lost messages were reported twice")
	}
	if fellWithin >= 20*time.Second {
		t.Error("the master's HeadPatience is over first: it would go on with the lower head, and a later report would name new messages")
	}
}

// RocketMQ 4.x does not raise the minimum of a queue whose messages are all deleted. Later messages are
// still compared, and read.
func TestAQueueWhoseMessagesWereAllRemovedIsReadAndComparedOn(t *testing.T) {
	f := newFake(t, 1)
	o := f.options()
	o.trimWithin = time.Nanosecond
	s := f.source(o)
	f.write("a", 100)
	looked(t, s)
	cur := f.open(s, 0, 1000, 0)
	if n, err := next(t.Context(), cur, 100); n != 100 || err != nil {
		t.Fatalf("%d messages (%v)", n, err)
	}
	cur.Close()
	f.set(func() { f.master().gone = 100 })
	f.restarted()
	f.write("a", 50)
	if found := looked(t, s); len(found) > 0 {
		t.Errorf("%+v is reported as replaced, but nothing was", found)
	}
	cur = f.open(s, 0, 1000, 100)
	defer cur.Close()
	var n int
	var err error
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only ends a test that hangs
	defer cancel()
	for again := true; again && ctx.Err() == nil; { // as an agent does
		n, err = next(ctx, cur, 50)
		_, again = errors.AsType[*sources.Temporary](err)
	}
	if n != 50 || err != nil {
		t.Errorf("%d messages (%v)", n, err)
	}
	f.lose(100)
	f.write("bb", 60)
	if found := looked(t, s); len(found) != 1 || found[0].From < 100 || found[0].Before != 150 {
		t.Errorf("%+v is reported as replaced, want a range from 100 or later up to 150", found)
	}
}

// Hundreds of queues may have large messages. Only a few messages are asked for at once.
func TestLargeMessagesAreComparedFewAtATime(t *testing.T) {
	for _, c := range []struct{ size, want int }{{0, 4}, {1000, comparedAtOnce}, {1 << 20, 8}, {3 << 20, 2}, {40 << 20, 1}} {
		var looks []*look
		for range 2*comparedAtOnce + 1 {
			l := &look{h: &history{}, at: -1}
			if c.size > 0 {
				l.h.traces, l.at = []trace{{size: c.size}}, 0
			}
			looks = append(looks, l)
		}
		begun := 0
		for rest := looks; len(rest) > 0; {
			var some []*look
			if some, rest = few(rest); len(some) > c.want || len(rest) > 0 && len(some) != c.want {
				t.Errorf("with messages of %d bytes, %d looks begin at once, want %d", c.size, len(some), c.want)
			}
			begun += len(some)
		}
		if begun != len(looks) {
			t.Errorf("%d of %d looks have begun", begun, len(looks))
		}
	}
	f := newFake(t, 1)
	s := f.source(f.options())
	f.write("a", 100)
	looked(t, s)
	if all := s.histories[fakeQueue].traces; len(all) == 0 || all[0].size < fixedSize {
		t.Errorf("the source remembers %+v, without the sizes of messages", all)
	}
}

// A broker whose queues are always behind its commit log does not delay the heads of all other brokers.
func TestABrokerWhoseQueuesStayBehindIsWaitedForOnlyAsLongAsForAnAnswer(t *testing.T) {
	f := newFake(t, 1)
	o := f.options()
	o.fellWithin, o.answerWithin = time.Nanosecond, 5*time.Second // long enough for a busy machine
	s := f.source(o)
	f.write("a", 200)
	looked(t, s)
	f.lose(150)
	f.set(func() { f.master().behind = 5 })
	if found := looked(t, s); len(found) > 0 { // must return
		t.Errorf("%+v is reported as replaced, want nothing yet", found)
	}
	f.set(func() { f.master().behind = 0 })
	if found := looked(t, s); len(found) != 1 || found[0].From != 150 {
		t.Errorf("%+v is reported as replaced, want a range from 150 on", found)
	}
	s.upToDate = map[string]bool{}
	f.set(func() { f.master().behind, f.master().asked = 5, 0 })
	addr := f.master().addr()
	for range 3 {
		answered(t, func() error {
			shows, err := s.shows(t.Context(), addr)
			if shows {
				t.Error("the broker counts as up to date")
			}
			return err
		})
	}
	f.set(func() {
		if f.master().asked > int(o.answerWithin/(10*time.Millisecond)) {
			t.Errorf("the broker was asked %d times within %v", f.master().asked, o.answerWithin)
		}
	})
}

// A look that could not begin does not count: messages below the head that fell must still be compared.
func TestALookThatFailsToStartChangesNothing(t *testing.T) {
	f := newFake(t, 1)
	s := f.source(f.options())
	f.write("a", 100)
	looked(t, s)
	for _, change := range []func(){func() { f.lose(60) }, func() { f.write("bb", 60) }} {
		change()
		if _, err := s.Bounds(t.Context(), []sources.PartitionID{fakeQueue}); err != nil {
			t.Fatal(err)
		}
	}
	h := s.histories[fakeQueue]
	over, fell := h.over, h.fell
	gone := serve(t, nil)
	gone.l.Close()
	f.set(func() { f.master().fakeServer, gone = gone, f.master().fakeServer })
	s.forgetRoute("t")
	if found, err := s.Compare(t.Context()); err == nil || len(found) > 0 {
		t.Fatalf("%+v (%v)", found, err)
	}
	if h.over != over || h.fell != fell || fell.IsZero() {
		t.Errorf("the head counts as over %q and fallen at %v; before the failed look over %q, at %v", h.over, h.fell, over, fell)
	}
	f.set(func() { f.master().fakeServer = gone })
	s.forgetRoute("t")
	if found := looked(t, s); len(found) != 1 || found[0].Before != 100 {
		t.Errorf("%+v is reported as replaced, want a range up to 100", found)
	}
}

// Another replica that becomes the master may have the same messages or others.
func TestAnotherMasterIsComparedWithTheOneBefore(t *testing.T) {
	for _, same := range []bool{true, false} {
		f := newFake(t, 2)
		o := f.options()
		s := f.source(o)
		f.write("a", 100)
		looked(t, s)
		f.set(func() {
			f.replicas[remoting.MasterID] = f.replicas[1]
			delete(f.replicas, 1)
			if !same {
				f.master().log[99].born++
			}
		})
		s.forgetRoute("t")
		if got := looked(t, s); (len(got) == 0) != same {
			t.Errorf("with the same messages (%v): %+v", same, got)
		}
	}
}

// next reads until it has n messages, or until an error.
func next(ctx context.Context, c sources.Cursor, n int) (read int, err error) {
	var b sources.Batch
	for read < n {
		if err := c.Next(ctx, &b); err != nil {
			return read, err
		}
		read += len(b.Recs)
	}
	return read, nil
}

// A reader that lost its connection goes on only if the broker still has the message that it read last.
func TestAReaderThatWasCutOffReadsOnOnlyAfterTheMessageItHasRead(t *testing.T) {
	for _, c := range []struct {
		name    string
		refill  string // the round of the messages that are written instead
		reopens bool
		want    bool // the reader gets an error
	}{
		{"others came, the same cursor", "bb", false, true},
		{"others came, another cursor", "bb", true, true},
		{"the same messages", "a", true, false},
		{"the same messages, the same cursor", "a", false, false},
		{"the same messages at another place of the log", "uploaded", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, 1)
			s := f.source(f.options())
			f.write("a", 100)
			cur := f.open(s, 0, 1000, 0)
			if n, err := next(t.Context(), cur, 100); n != 100 || err != nil {
				t.Fatalf("%d messages (%v)", n, err)
			}
			s.passed(fakeQueue, f.traceAt(49)) // as a cursor does at the end of a batch
			s.passed(fakeQueue, f.traceAt(79))
			if c.reopens {
				cur.Close()
			}
			if c.refill == "uploaded" {
				f.write("a", 60)
				f.set(f.uploaded)
			} else {
				f.lose(60)
				f.write(c.refill, 100)
			}
			f.restarted()
			if c.reopens {
				cur = f.open(s, 0, 1000, 100)
			}
			var n int
			var err error
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only ends a hang
			defer cancel()
			for again := true; again && err != io.EOF && ctx.Err() == nil; { // as an agent
				n, err = next(ctx, cur, 60)
				_, again = errors.AsType[*sources.Temporary](err)
			}
			cur.Close()
			diverged, is := errors.AsType[*sources.Diverged](err)
			if is != c.want || is && (diverged.Head < 50 || diverged.Head > 60 || n > 0 || !strings.Contains(err.Error(), "t/b/0")) || !is && n != 60 {
				t.Errorf("the reader has read %d and returns %v", n, err)
			}
		})
	}
}

// A reader that begins at the head has not read the message before it, but remembers it.
func TestAReaderThatBeginsAtTheHeadKnowsTheMessageBeforeIt(t *testing.T) {
	f := newFake(t, 1)
	s := f.source(f.options())
	f.write("a", 100)
	cur := f.open(s, 0, 1000, 100)
	at := make(chan bool, 1)
	cur.(sources.Tailing).OnHead(func(int64) {
		select {
		case at <- true:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := next(ctx, cur, 1)
		cur.Close()
		ended <- err
	}()
	<-at
	for { // the reader has remembered the message when it asks for the next one
		f.mu.Lock()
		pulls := f.master().pulls
		f.mu.Unlock()
		if pulls >= 4 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("got the error %v, want %v", err, context.Canceled)
	}
	f.lose(90)
	f.write("bb", 50)
	cur = f.open(s, 0, 1000, 100)
	defer cur.Close()
	_, err := next(t.Context(), cur, 1)
	if _, is := errors.AsType[*sources.Diverged](err); !is {
		t.Errorf("the reader returns %v", err)
	}
}

// A broker that hangs costs one wait in Compare, or one in Bounds. It is not asked about its other queues.
func TestABrokerThatHangsIsNotAskedAgainToCompare(t *testing.T) {
	f := newFake(t, 1)
	f.queues = 2 * comparedAtOnce
	o := f.options()
	o.answerWithin = 5 * time.Second // long enough for a busy machine
	s := f.source(o)
	f.write("a", 100)
	var ids []sources.PartitionID
	answered(t, func() (err error) { ids, err = s.Partitions(t.Context()); return err })
	if len(ids) != f.queues {
		t.Fatalf("%d queues", len(ids))
	}
	for range 2 {
		lookedAt(t, s, ids)
		f.write("a", 1)
	}
	bounded(t, s, ids)
	s.compareAgain = time.Time{}
	f.set(func() { f.master().frozen, f.master().pulls = true, 0 })
	found, err := s.Compare(t.Context())
	if again, is := errors.AsType[*sources.Temporary](err); !is || !again.Away || len(found) > 0 {
		t.Errorf("%+v (%v)", found, err)
	}
	f.set(func() {
		if f.master().pulls > 2*comparedAtOnce { // two messages of each queue
			t.Errorf("the hanging broker was asked for %d messages", f.master().pulls)
		}
		f.master().pulls = 0
	})
	bounds, err := s.Bounds(t.Context(), []sources.PartitionID{fakeQueue})
	if again, is := errors.AsType[*sources.Temporary](bounds[0].Err); err != nil || !is || !again.Away {
		t.Errorf("%+v (%v)", bounds, err)
	}
	if found, err := s.Compare(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("%+v (%v)", found, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.master().pulls > 0 {
		t.Errorf("the hanging broker was asked for %d messages", f.master().pulls)
	}
}
