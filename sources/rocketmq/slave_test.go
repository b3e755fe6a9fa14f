package rocketmq

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A slave copies the list of topics every ten seconds. Before that, it answers for a new topic as for a deleted
// one. So only the answer of a master stops a dataset.
func TestASlaveThatDoesNotKnowATopicYetIsNoTopicThatWasDeleted(t *testing.T) {
	s, err := Open(Options{Dataset: "d", NameServers: []string{"127.0.0.1:1"}, Topics: []string{"t"}, MaxRecord: 1,
		Start: End{At: brokers.Earliest}, End: End{At: brokers.Latest}, topicWithin: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, code := range []int{remoting.TopicUnknown, remoting.QueueUnknown} {
		for id, gone := range map[int64]bool{remoting.MasterID: true, 1: false} {
			c := &cursor{s: s, p: partition{"c", "b", "t", 0}, r: sources.Range{End: 10}, replica: remoting.Replica{ID: id, Addr: "127.0.0.1:2"}, wrong: time.Unix(1, 0)}
			err := c.answer(t.Context(), &pull{end: 10}, &remoting.Pulled{Code: code})
			_, changed := errors.AsType[*sources.Changed](err)
			_, again := errors.AsType[*sources.Temporary](err)
			if changed != gone || again == gone {
				t.Errorf("code %d of replica %d: %v", code, id, err)
			}
		}
	}
}

func TestABrokerWithoutItsMasterIsAwayAndItsTopicsAreNotGone(t *testing.T) {
	p := partition{"c", "b", "t", 0}
	slave, master := remoting.Replica{ID: 1, Addr: "s"}, remoting.Replica{ID: remoting.MasterID, Addr: "m"}
	for _, c := range []struct {
		broker remoting.Broker
		runs   bool
	}{
		{remoting.Broker{Cluster: "c", Name: "b", Replicas: []remoting.Replica{master, slave}}, true},
		{remoting.Broker{Cluster: "c", Name: "b", Replicas: []remoting.Replica{slave}}, false},
		{remoting.Broker{Cluster: "c", Name: "b"}, false},
		{remoting.Broker{Cluster: "other", Name: "b", Replicas: []remoting.Replica{master}}, false},
	} {
		if got := runs(p, []remoting.Broker{c.broker}); got != c.runs {
			t.Errorf("%+v: %v", c.broker, got)
		}
	}
}

// A hanging master still accepts connections and requests, and the name servers name it for two minutes. After
// an error the agent opens another cursor, which asks the slave.
func TestASlaveIsReadWhileItsMasterHangs(t *testing.T) {
	f := newFake(t, 2)
	f.write("a", 500)
	f.set(func() { f.master().frozen = true })
	o := f.options()
	o.End.At, o.answerWithin = brokers.Latest, 5*time.Second // long enough for the slave's answers on a busy machine
	s := f.source(o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read, opened := 0, 0
	for err := error(nil); err != io.EOF; opened++ { // as an agent does
		cur := f.open(s, 0, 500, int64(read))
		var n int
		n, err = next(ctx, cur, 500-read)
		read += n
		cur.Close()
		if _, again := errors.AsType[*sources.Temporary](err); err != nil && !again {
			t.Fatalf("after %d messages: %v", read, err)
		}
		if read == 500 {
			break
		}
	}
	t.Logf("opened %d cursors", opened)
	f.mu.Lock()
	asked := f.master().pulls
	f.mu.Unlock()
	f.open(s, 0, 1, 0).Close()
	if n, err := next(ctx, f.open(s, 0, 100, 0), 100); n != 100 || err != nil {
		t.Errorf("the next range: %d messages (%v)", n, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if more := f.master().pulls - asked; more > 0 {
		t.Errorf("the hanging master was asked %d times more", more)
	}
}

// If one replica is silent, all cursors know it: one asks it again, and the others do not.
func TestOneReplicaIsSilentForAllCursorsUntilItAnswers(t *testing.T) {
	var w silence
	all := []remoting.Replica{{ID: 0, Addr: "m"}, {ID: 1, Addr: "s"}}
	picked := func(want string) {
		t.Helper()
		if got := w.pick(all).Addr; got != want {
			t.Errorf("%s is asked, want %s", got, want)
		}
	}
	picked("m")
	for range 4 {
		w.note("m")
		picked("s")
	}
	w.note("s")
	picked("m") // it was asked longest ago
	picked("s")
	w.ends("s")
	picked("s")
	w.until["m"] = time.Now().Add(-time.Second)
	picked("m") // one cursor asks it again
	picked("s") // and the others do not
	w.ends("m")
	picked("m")
}

// For -race: one cursor forgets a route while others check whether it is new enough.
func TestARouteIsForgottenWhileItIsUsed(t *testing.T) {
	f := newFake(t, 1)
	s := f.source(f.options())
	p := partition{"c", "b", "t", 0}
	var all sync.WaitGroup
	var ended atomic.Bool
	all.Go(func() {
		for !ended.Load() {
			s.forgetRoute("t")
			runtime.Gosched()
		}
	})
	for range 2000 {
		if _, err := s.replicas(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	ended.Store(true)
	all.Wait()
}
