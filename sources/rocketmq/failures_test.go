//go:build rocketmq

package rocketmq

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	official "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/internal/secret"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

// reading reads as an agent does: after a temporary error it opens another cursor where it was.
type reading struct {
	t       *testing.T
	s       *Source
	next    int64
	again   int
	records int
}

func (r *reading) whole(rng sources.Range, loc []byte, between func(records int)) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		err := r.attempt(rng, loc, between)
		if errors.Is(err, io.EOF) {
			return
		}
		again, temporary := errors.AsType[*sources.Temporary](err)
		if !temporary || time.Now().After(deadline) {
			r.t.Fatalf("at %d: %v", r.next, err)
		}
		r.again++
		between(r.records)
		if err := brokers.Pause(r.t.Context(), again.Backoff); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *reading) attempt(rng sources.Range, loc []byte, between func(records int)) error {
	c, err := r.s.Open(r.t.Context(), rng, sources.Position{Offset: r.next}, loc)
	if err != nil {
		return err
	}
	defer c.Close()
	var b sources.Batch
	for {
		if err := c.Next(r.t.Context(), &b); err != nil {
			return err
		}
		for _, rec := range b.Recs {
			if rec.Offset != r.next {
				r.t.Fatalf("read offset %d, want %d", rec.Offset, r.next)
			}
			r.next = rec.Next
			r.records++
		}
		r.next = b.End
		between(r.records)
	}
}

// asked asks until the answer is not a temporary error. On a busy machine, even a running broker may not
// answer within 2 s.
func asked[T any](t *testing.T, ask func() (T, error)) T {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		answer, err := ask()
		if err == nil {
			return answer
		}
		again, temporary := errors.AsType[*sources.Temporary](err)
		if !temporary || time.Now().After(deadline) {
			t.Fatal(err)
		}
		if err := brokers.Pause(t.Context(), again.Backoff); err != nil {
			t.Fatal(err)
		}
	}
}

func sendNumbered(t *testing.T, p official.Producer, broker *testbroker.RocketBroker, topic string, n int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var all []*primitive.Message
		for i := from; i < from+1000; i++ {
			all = append(all, primitive.NewMessage(topic, append(fmt.Append(nil, i, ":"), bytes.Repeat([]byte("r"), 400)...)))
		}
		send(t, p, broker, topic, 0, all...)
	}
}

// Two brokers have a topic. The first is killed in the middle of a read, and frozen later. Meanwhile the
// second is away, and comes back. No record is lost or read twice.
func TestBrokersThatAreKilledFrozenOrAwayLoseNothingAndHoldUpNobodyElse(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{Brokers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := newProducer(b, "failures", primitive.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Shutdown()
	const n = 30_000
	topic := newTopic(t, b, 1)
	sendNumbered(t, p, b.RocketBroker, topic, n)
	sendNumbered(t, p, b.Broker(1), topic, 1000)
	holds(t, b.RocketBroker, topic, n)
	holds(t, b.Broker(1), topic, 1000)

	o := options(b, topic)
	o.Brokers, o.answerWithin, o.headWithin = []string{"b0", "b1"}, 2*time.Second, 0
	s := openFor(t, o)
	parts := asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) })
	if len(parts) != 2 {
		t.Fatalf("the partitions are %v, want one for each of the two brokers", parts)
	}
	var segs []sources.Segment
	for _, id := range parts {
		some := asked(t, func() ([]sources.Segment, error) { return s.Segments(t.Context(), id, -1, 2) })
		if len(some) != 1 {
			t.Fatalf("the segments are %v, want one", some)
		}
		segs = append(segs, some[0])
	}
	if err := b.Broker(1).Kill(); err != nil {
		t.Fatal(err)
	}
	bounds := asked(t, func() ([]sources.Bounds, error) {
		all, err := s.Bounds(t.Context(), parts)
		if err == nil {
			err = all[0].Err
		}
		return all, err
	})
	if bounds[0].Head.Offset != n {
		t.Errorf("bounds at the running broker: %+v", bounds)
	}
	if again, _ := errors.AsType[*sources.Temporary](bounds[1].Err); again == nil || !again.Away {
		t.Errorf("bounds at the broker that is away: %v", bounds[1].Err)
	}
	tells(t, b, topic, "a broker was killed", func(r remoting.Route) bool { _, runs := r.Broker("b1"); return !runs })
	for deadline := time.Now().Add(5 * time.Minute); ; { // at first the name server may not answer within 2 s
		_, err := openFor(t, o).Partitions(t.Context())
		if err != nil && strings.Contains(err.Error(), "b1") {
			break
		}
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("listing without a broker that the spec names: got the error %v, want one with %q", err, "b1")
		}
	}

	killed, frozen, thawed, before := false, false, false, 0
	r := &reading{t: t, s: s}
	whole := func(i int) sources.Range {
		return sources.Range{Partition: parts[i], Segment: segs[i].ID, Start: segs[i].Start, End: segs[i].End}
	}
	r.whole(whole(0), segs[0].Locator, func(records int) {
		switch {
		case !killed && records > n/4:
			killed = true
			if err := errors.Join(b.Kill(), b.Start(t.Context())); err != nil {
				t.Fatal(err)
			}
		case killed && !frozen && records > n/2:
			frozen, before = true, r.again
			if err := b.Freeze(); err != nil {
				t.Fatal(err)
			}
		case frozen && !thawed && r.again > before: // the reader has got the error that the broker does not answer
			thawed = true
			if err := b.Thaw(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if r.records != n || !killed || !thawed {
		t.Errorf("%d records of %d; killed %v, frozen %v, thawed %v", r.records, n, killed, frozen, thawed)
	}
	t.Logf("opened again %d times", r.again)

	// The second broker's queue waits for its broker.
	other, back := &reading{t: t, s: s}, false
	other.whole(whole(1), segs[1].Locator, func(int) {
		if !back {
			if back = true; other.again == 0 {
				t.Error("a broker that is away was read")
			}
			if err := b.Broker(1).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
	if other.records != 1000 {
		t.Errorf("read %d of the second broker's 1000 records", other.records)
	}
}

// tells waits until the name server has noticed something. It hears a moment later what brokers do, but up to
// two minutes later that a broker does not run any more.
func tells(t *testing.T, b *testbroker.RocketMQ, topic, what string, is func(remoting.Route) bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		route, err := b.Client().Route(t.Context(), topic)
		if err == nil && is(route) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the name server has not noticed that %s: %+v (%v)", what, route, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// If a topic is deleted in the middle of a read, the error names everything that was not read.
func TestATopicThatIsDeletedInMidReadIsToldWithTheRestOfTheRange(t *testing.T) {
	b, p := realBroker(t)
	const n = 5000
	topic := newTopic(t, b, 1)
	sendNumbered(t, p, b.RocketBroker, topic, n)
	holds(t, b.RocketBroker, topic, n)
	s := openFor(t, options(b, topic))
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetest.Segments(t, s, parts[0], 1)[0]
	r := &reading{t: t, s: s}
	deleted := false
	err = r.attempt(sources.Range{Partition: parts[0], Segment: g.ID, Start: g.Start, End: g.End}, g.Locator, func(int) {
		if !deleted {
			deleted = true
			if err := b.DeleteTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
		}
	})
	changed, ok := errors.AsType[*sources.Changed](err)
	if !ok || changed.Range.Start != r.next || changed.Range.End != n || r.next == 0 || !strings.Contains(err.Error(), topic) {
		t.Errorf("after %d of %d: %v", r.next, n, err)
	}
}

// While the master removes files of its commit log, its minimum offset is late by seconds, and pulls answer
// code 20 or leave messages out. A reader that begins again and again gets its whole range, or an error that
// says from where on it is lost. Messages that only the slave still has are read there. While the master is
// dead, everything is.
func TestWhileFilesAreRemovedNothingIsSkippedAndASlaveGivesWhatItStillHas(t *testing.T) {
	set := map[string]string{"mappedFileSizeCommitLog": "8388608", "cleanResourceInterval": "1000", "maxMessageSize": "4194304", "slaveReadEnable": "true"}
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{Slave: true, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := newProducer(b, "removing", primitive.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Shutdown()
	const n = 3000
	topic := newTopic(t, b, 1)
	sendNumbered(t, p, b.RocketBroker, topic, n)
	for _, one := range []*testbroker.RocketBroker{b.RocketBroker, b.Slave()} {
		holds(t, one, topic, n)
	}
	fill(t, b, p) // before the slave starts, because a new slave copies only the last file of the master's commit log
	o := options(b, topic)
	o.answerWithin = 2 * time.Second
	s := openFor(t, o)
	parts := asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) })
	g := sourcetest.Segments(t, s, parts[0], 1)[0]
	rng := sources.Range{Partition: parts[0], Segment: g.ID, Start: g.Start, End: g.End}

	// The master is dead, and the slave has everything. It learns of a topic seconds later.
	slaveKnows(t, b, topic)
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	away := &reading{t: t, s: s}
	if away.whole(rng, g.Locator, func(int) {}); away.records != n {
		t.Errorf("read %d of %d records from the slave", away.records, n)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The master removes files, and the slave does not.
	trimmed := make(chan error, 1)
	q := remoting.Queue{Topic: topic}
	go func() { trimmed <- b.Trim(t.Context(), q, n) }() // its end is awaited below
	rounds := 0
	for done := false; !done; rounds++ {
		select {
		case err := <-trimmed:
			if done = true; err != nil { // one more round follows
				t.Fatal(err)
			}
		default:
		}
		one := &reading{t: t, s: s}
		if one.whole(rng, g.Locator, func(int) {}); one.records != n {
			t.Fatalf("round %d: %d records of %d", rounds, one.records, n)
		}
	}
	t.Logf("read %d times while files were removed", rounds)

	// Without a slave, the error names the lost range exactly.
	if err := b.Slave().Kill(); err != nil {
		t.Fatal(err)
	}
	var lost *sources.Truncated
	for deadline := time.Now().Add(5 * time.Minute); ; {
		alone := &reading{t: t, s: s}
		err := alone.attempt(rng, g.Locator, func(int) {})
		if errors.As(err, &lost) {
			break
		}
		if _, again := errors.AsType[*sources.Temporary](err); !again || time.Now().After(deadline) {
			t.Fatalf("reading what was removed: %v", err)
		}
	}
	if lost.Lost != rng {
		t.Errorf("lost is %+v, want %+v", lost.Lost, rng)
	}
}

func allowReader(t *testing.T, b *testbroker.RocketMQ, k remoting.Credentials, topic string) {
	t.Helper()
	const createUser, createACL = 3001, 3006
	for _, cmd := range []*remoting.Command{
		{Code: createUser, Ext: map[string]string{"username": k.AccessKey},
			Body: fmt.Appendf(nil, `{"username":%q,"password":%q,"userType":"Normal"}`, k.AccessKey, k.SecretKey)},
		{Code: createACL, Ext: map[string]string{"subject": "User:" + k.AccessKey},
			Body: fmt.Appendf(nil, `{"subject":"User:%s","policies":[{"policyType":"Custom","entries":[`+
				`{"resource":"Topic:%s","actions":["Sub","Get"],"decision":"Allow"},{"resource":"Group:headrace","actions":["Sub","Get"],"decision":"Allow"}]}]}`, k.AccessKey, topic)},
	} {
		if _, err := b.Client().Call(t.Context(), b.Addr(), cmd); err != nil {
			t.Fatal(err)
		}
	}
}

// specsReachASecuredBroker reads with specs whose secret key is in a variable or a file. The broker accepts
// plain connections, too, so a refused certificate is the proof that TLS is used.
func specsReachASecuredBroker(t *testing.T, b *testbroker.RocketMQ, topic string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"key": testbroker.Password, "wrong": "another"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HEADRACE_ROCKETMQ_KEY", testbroker.Password)
	key := func(name string) string {
		return fmt.Sprintf(", acl: {access_key: %s, secret_key_file: %s}", testbroker.User, filepath.Join(folder, name))
	}
	env := fmt.Sprintf(", acl: {access_key: %s, secret_key_env: HEADRACE_ROCKETMQ_KEY}", testbroker.User)
	for _, c := range []struct{ security, want string }{
		{env, ""},
		{key("key"), ""},
		{env + ", tls: {ca: " + b.Names.CA() + "}", ""},
		{env + ", tls: {ca: " + b.Names.CA() + ", server_name: elsewhere}", "rocketmq.tls.server_name"},
		{key("wrong"), "rocketmq.acl"},
		{"", "rocketmq.acl"},
	} {
		text := fmt.Sprintf("name: d\nrocketmq: {name_servers: [%q], topic: %s%s}\ndecode: lines\n", b.NameServer(), topic, c.security)
		spec, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		src, err := openSpec(spec, dataset.Opening{AllowedRoots: []string{folder, b.Names.Dir()}})
		if err != nil {
			t.Errorf("%s: %v", c.security, err)
			continue
		}
		s := src.(*Source)
		if c.want == "" {
			if got := len(everything(t, s)); got != 1000 {
				t.Errorf("%s: %d records", c.security, got)
			}
		} else {
			refuses(t, s, c.want)
		}
		s.Close()
	}
}

// refuses checks that a source cannot list, and that its error contains a word.
func refuses(t *testing.T, s *Source, word string) {
	t.Helper()
	parts, err := s.Partitions(t.Context())
	if err == nil {
		_, err = s.Segments(t.Context(), parts[0], -1, 1)
	}
	if _, again := errors.AsType[*sources.Temporary](err); err == nil || again || !strings.Contains(err.Error(), word) {
		t.Errorf("the error is %v, want one with %q", err, word)
	}
}

func TestSignedRequestsAndTLSReadTheSameAndARefusedOneSaysWhy(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{ACL: true, TLS: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	k := primitive.Credentials{AccessKey: testbroker.User, SecretKey: testbroker.Password}
	p, err := newProducer(b, "signed", k)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Shutdown()
	topic := newTopic(t, b, 1)
	sendNumbered(t, p, b.RocketBroker, topic, 1000)
	holds(t, b.RocketBroker, topic, 1000)

	o := options(b, topic)
	o.Credentials = remoting.Credentials{AccessKey: k.AccessKey, SecretKey: k.SecretKey}
	if got := len(everything(t, openFor(t, o))); got != 1000 {
		t.Errorf("signed: %d records", got)
	}
	if o.TLS, err = secret.TLS("rocketmq.tls", &dataset.TLS{CA: b.Names.CA()}); err != nil {
		t.Fatal(err)
	}
	if got := len(everything(t, openFor(t, o))); got != 1000 {
		t.Errorf("signed, with TLS: %d records", got)
	}
	specsReachASecuredBroker(t, b, topic)
	o.Group = "signed-progress"
	s := openFor(t, o)
	parts, err := s.Partitions(t.Context())
	if err == nil {
		err = s.Commit(t.Context(), []sources.Mark{{Partition: parts[0], Position: sources.Position{Offset: 7}}})
	}
	if err != nil {
		t.Errorf("committing: %v", err)
	}

	// A user that may only read the topic reads it, and may ask how far its queues are.
	reader := remoting.Credentials{AccessKey: "reader", SecretKey: "readers-password"}
	allowReader(t, b, reader, topic)
	var said bytes.Buffer
	limited := options(b, topic)
	limited.Credentials, limited.Logger = reader, slog.New(slog.NewTextHandler(&said, nil))
	if got := len(everything(t, openFor(t, limited))); got != 1000 {
		t.Errorf("a user who may only read the topic read %d records", got)
	}
	if strings.Contains(said.String(), "level=WARN") {
		t.Errorf("a user who may only read the topic could not ask how far the queues are: %s", said.String())
	}

	refused := func(o Options, word string) {
		t.Helper()
		refuses(t, openFor(t, o), word)
	}
	stranger := o
	stranger.TLS.RootCAs = nil
	refused(stranger, "rocketmq.tls.ca")
	unsigned := options(b, topic)
	refused(unsigned, "rocketmq.acl")
	unsigned.Credentials = remoting.Credentials{AccessKey: k.AccessKey, SecretKey: "wrong"}
	refused(unsigned, "rocketmq.acl")
}
