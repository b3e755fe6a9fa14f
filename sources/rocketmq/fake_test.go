package rocketmq

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// fake is a name server and the replicas of one broker, b, of cluster c. It has one topic, t, with one queue. It
// answers the source's requests as RocketMQ 5.3.3 does.
type fake struct {
	t     *testing.T
	names *fakeServer

	mu       sync.Mutex // guards what follows
	replicas map[int64]*fakeReplica
	missing  bool // the topic does not exist
	queues   int  // the number of queues, if not 0; all have the same messages
}

// fakeReplica is one replica, with the messages of its queue.
type fakeReplica struct {
	*fakeServer
	f      *fake
	id     int64
	low    int64
	gone   int64     // messages below it are removed, but low does not say so, as in RocketMQ 4.x
	log    []stored  // from offset 0 on
	frozen bool      // it takes requests and does not answer
	refuse int       // if not 0: the code with which it answers each request except for a route
	pulls  int       // the number of pulls, answered or not
	behind int       // the bytes by which its queues are behind the commit log, as it answers
	asked  int       // how often it was asked for `behind`
	config string    // more lines of its configuration
	disk   [2]string // how full the disks of the commit log and of the queues are
}

type fakeServer struct {
	l     net.Listener
	conns sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool
}

func newFake(t *testing.T, replicas int) *fake {
	f := &fake{t: t, replicas: map[int64]*fakeReplica{}}
	f.names = serve(t, f.route)
	for id := range int64(replicas) {
		r := &fakeReplica{f: f, id: id}
		r.fakeServer = serve(t, r.answer)
		f.replicas[id] = r
	}
	return f
}

type fakeCommand struct {
	Code   int               `json:"code"`
	Opaque int32             `json:"opaque"`
	Flag   int               `json:"flag"`
	Remark string            `json:"remark"`
	Ext    map[string]string `json:"extFields"`
	body   []byte
}

// serve answers each request with what handle returns; nil sends no answer.
func serve(t *testing.T, handle func(fakeCommand) *fakeCommand) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{l: l, open: map[net.Conn]bool{}}
	s.conns.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[nc] = true
			s.mu.Unlock()
			s.conns.Go(func() { talk(nc, handle) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.hangUp()
		s.conns.Wait()
	})
	return s
}

func (s *fakeServer) addr() string { return s.l.Addr().String() }

// hangUp ends all connections, as a restart of the server does.
func (s *fakeServer) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for nc := range s.open {
		nc.Close()
		delete(s.open, nc)
	}
}

func talk(nc net.Conn, handle func(fakeCommand) *fakeCommand) {
	defer nc.Close()
	r := bufio.NewReader(nc)
	for {
		var lengths [8]byte
		if _, err := io.ReadFull(r, lengths[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(lengths[:])-4)
		if _, err := io.ReadFull(r, b); err != nil {
			return
		}
		var in fakeCommand
		if json.Unmarshal(b[:binary.BigEndian.Uint32(lengths[4:])], &in) != nil {
			return
		}
		a := handle(in)
		if a == nil {
			continue
		}
		a.Opaque, a.Flag = in.Opaque, 1
		h, _ := json.Marshal(a)
		out := binary.BigEndian.AppendUint32(nil, uint32(4+len(h)+len(a.body)))
		out = binary.BigEndian.AppendUint32(out, uint32(len(h)))
		if _, err := nc.Write(append(append(out, h...), a.body...)); err != nil {
			return
		}
	}
}

// route answers as a name server.
func (f *fake) route(in fakeCommand) *fakeCommand {
	f.mu.Lock()
	defer f.mu.Unlock()
	addrs := map[string]string{}
	for id, r := range f.replicas {
		addrs[strconv.FormatInt(id, 10)] = r.addr()
	}
	broker := map[string]any{"cluster": "c", "brokerName": "b", "brokerAddrs": addrs}
	said := map[string]any{"brokerAddrTable": map[string]any{"b": broker}}
	if in.Code == 105 {
		if f.missing || in.Ext["topic"] != "t" {
			return &fakeCommand{Code: remoting.TopicUnknown, Remark: "no route"}
		}
		said = map[string]any{"brokerDatas": []any{broker},
			"queueDatas": []any{map[string]any{"brokerName": "b", "readQueueNums": max(1, f.queues), "writeQueueNums": max(1, f.queues), "perm": 6}}}
	}
	body, _ := json.Marshal(said)
	return &fakeCommand{body: body}
}

// answer answers as a broker.
func (r *fakeReplica) answer(in fakeCommand) *fakeCommand {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if in.Code == 11 {
		r.pulls++
	}
	number := func(name string) int64 { n, _ := strconv.ParseInt(in.Ext[name], 10, 64); return n }
	ext := func(all ...any) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(all); i += 2 {
			m[all[i].(string)] = fmt.Sprint(all[i+1])
		}
		return m
	}
	head := int64(len(r.log))
	switch {
	case r.frozen:
		return nil
	case r.refuse != 0:
		return &fakeCommand{Code: r.refuse, Remark: "as the test wants"}
	case in.Code == 30:
		return &fakeCommand{Ext: ext("offset", head)}
	case in.Code == 31:
		return &fakeCommand{Ext: ext("offset", r.low)}
	case in.Code == 28:
		r.asked++
		return &fakeCommand{body: fmt.Appendf(nil, `{"table":{"commitLogMaxOffset":"1","dispatchBehindBytes":"%d","commitLogDiskRatio":%q,"consumeQueueDiskRatio":%q}}`, r.behind, r.disk[0], r.disk[1])}
	case in.Code == 26:
		return &fakeCommand{body: []byte("flushDiskType=ASYNC_FLUSH\n" + r.config)}
	case in.Code != 11:
		return &fakeCommand{Code: 3, Remark: "not played"}
	}
	at := number("queueOffset")
	a := &fakeCommand{Ext: ext("nextBeginOffset", at, "minOffset", r.low, "maxOffset", head)}
	switch {
	case at == head:
		a.Code = remoting.PullNotFound
	case at < r.low || at > head:
		a.Code = remoting.PullMoved
	case at < r.gone:
		a.Code = remoting.PullRetry
	default:
		for _, m := range r.log[at:min(head, at+number("maxMsgNums"))] {
			a.body = append(a.body, m.encode()...)
		}
	}
	return a
}

// set runs change while no request is answered.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// master is the replica with id 0.
func (f *fake) master() *fakeReplica { return f.replicas[remoting.MasterID] }

// write appends n messages to the master's queue. Their bodies have the round, so messages of another round
// differ. Slaves get the same bytes.
func (f *fake) write(round string, n int) {
	f.set(func() {
		for range n {
			at := int64(len(f.master().log))
			m := stored{offset: at, place: 100 * at, born: int64(1_700_000_000_000 + len(round)), topic: "t", body: fmt.Appendf(nil, "%s %d", round, at)}
			for _, r := range f.replicas {
				r.log = append(r.log, m)
			}
		}
	})
}

// uploaded gives all messages another place in the commit log, as tiered storage does. Call it in set.
func (f *fake) uploaded() {
	for _, r := range f.replicas {
		for i := range r.log {
			r.log[i].place += 7
		}
	}
}

// lose removes the messages from an offset on from all replicas.
func (f *fake) lose(from int) {
	f.set(func() {
		for _, r := range f.replicas {
			r.log = r.log[:from:from]
		}
	})
}

// restarted ends the connections of all replicas.
func (f *fake) restarted() {
	for _, r := range f.replicas {
		r.hangUp()
	}
}

// traceAt is the trace of one of the master's messages.
func (f *fake) traceAt(offset int) trace {
	f.mu.Lock()
	defer f.mu.Unlock()
	var m message
	b := f.master().log[offset].encode()
	if err := m.read(b); err != nil {
		f.t.Fatal(err)
	}
	return m.trace(b)
}

func (f *fake) options() Options {
	return Options{Dataset: "d", NameServers: []string{f.names.addr()}, Topics: []string{"t"}, MaxRecord: 1000, Start: End{At: brokers.Earliest}, End: End{At: brokers.Never},
		headWithin: time.Nanosecond, topicWithin: time.Nanosecond, fellWithin: time.Hour, answerWithin: time.Minute}
}

func (f *fake) source(o Options) *Source {
	f.t.Helper()
	s, err := Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

const fakeQueue sources.PartitionID = "rocketmq:c/b/t/0"

// open opens a cursor of the queue.
func (f *fake) open(s *Source, start, end, from int64) sources.Cursor {
	f.t.Helper()
	c, err := s.Open(f.t.Context(), sources.Range{Partition: fakeQueue, Start: start, End: end}, sources.Position{Offset: from},
		partition{"c", "b", "t", 0}.locator(print{}))
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}
