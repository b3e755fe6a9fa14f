//go:build rocketmq

package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	official "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

// everything reads all segments of a source in order.
func everything(t testing.TB, s *Source) []sourcetest.Got {
	t.Helper()
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []sourcetest.Got
	for _, p := range parts {
		for _, g := range sourcetest.Segments(t, s, p, 10) {
			got, err := sourcetest.Read(t.Context(), s, sources.Range{Partition: p, Segment: g.ID, Start: g.Start, End: g.End},
				sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, got...)
		}
	}
	return all
}

// javaSends sends count messages of about length bytes with the official Java client to queue 0 of each
// topic. topics maps a topic to its compression.
func javaSends(t *testing.T, b *testbroker.RocketMQ, count, length, batch int, topics map[string]string) {
	t.Helper()
	args := []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=" + t.TempDir(), "-Drmq.logback.configurationFile=" + b.Logback(),
		"-cp", b.Classpath(), "testdata/Send.java", b.NameServer(), b.Name(), strconv.Itoa(count), strconv.Itoa(length), strconv.Itoa(batch)}
	for topic, compression := range topics {
		args = append(args, topic, compression)
	}
	if out, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for topic := range topics {
		holds(t, b.RocketBroker, topic, int64(count))
	}
}

// javaSent is the body of a message that javaSends sends.
func javaSent(compression string, number, length int) string {
	one := fmt.Sprintf("java %s %d ", compression, number)
	return strings.Repeat(one, (length+len(one)-1)/len(one))
}

func TestWhatTheJavaClientCompressedIsReadAsItWasWritten(t *testing.T) {
	b, _ := realBroker(t)
	const n, length = 50, 1000
	topics := map[string]string{}
	for _, kind := range []string{"ZLIB", "LZ4", "ZSTD"} {
		topics[newTopic(t, b, 1)] = kind
	}
	javaSends(t, b, n, length, 1, topics)
	for topic, kind := range topics {
		all := everything(t, openFor(t, options(b, topic)))
		if len(all) != n {
			t.Fatalf("%s: %d messages, want %d", kind, len(all), n)
		}
		for i, g := range all {
			if want := javaSent(kind, i, length); string(g.Value) != want || string(g.Key) != fmt.Sprint("key-", i) {
				t.Fatalf("%s: message %d is %.40q with key %q", kind, i, g.Value, g.Key)
			}
		}
	}
}

// A message with another tag than the dataset's is a hole: the offsets of other messages stay, and a batch acks
// the hole, too.
func TestAFilteredMessageIsAHole(t *testing.T) {
	b, p := realBroker(t)
	topic := newTopic(t, b, 1)
	var all []*primitive.Message
	for i := range 300 {
		all = append(all, primitive.NewMessage(topic, fmt.Append(nil, i)).WithTag([]string{"a", "b", "c"}[i%3]))
	}
	send(t, p, b.RocketBroker, topic, 0, all...)
	holds(t, b.RocketBroker, topic, 300)
	o := options(b, topic)
	o.Tags = []string{"b", "c"}
	s := openFor(t, o)
	for i, g := range everything(t, s) {
		if want := int64(i/2*3 + i%2 + 1); g.Position.Offset != want || string(g.Value) != fmt.Sprint(want) {
			t.Fatalf("record %d is message %d, %q; want %d", i, g.Position.Offset, g.Value, want)
		}
	}
	parts, _ := s.Partitions(t.Context())
	segs := sourcetest.Segments(t, s, parts[0], 10)
	c, err := s.Open(t.Context(), sources.Range{Partition: parts[0], Start: 0, End: 300}, sources.Position{}, segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var batch sources.Batch
	end := int64(0)
	for c.Next(t.Context(), &batch) == nil {
		end = batch.End
	}
	if end != 300 {
		t.Errorf("the last batch acks up to %d", end)
	}
}

// listener decides a transaction by the body of its message.
type listener struct{}

func (listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	if strings.HasPrefix(string(m.Body), "keep") {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (listener) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.RollbackMessageState
}

func TestCommittedTransactionsAndDueDelaysComeAndNothingElse(t *testing.T) {
	b, p := realBroker(t)
	topic := newTopic(t, b, 1)
	tp, err := official.NewTransactionProducer(listener{}, producer.WithNameServer([]string{b.NameServer()}), producer.WithGroupName("transactions"), producer.WithInstanceName("transactions"))
	if err == nil {
		err = tp.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tp.Shutdown()
	for _, body := range []string{"keep 1", "drop 1", "keep 2", "drop 2"} {
		transact(t, tp, topic, body)
	}
	send(t, p, b.RocketBroker, topic, 0, primitive.NewMessage(topic, []byte("late")).WithDelayTimeLevel(1)) // level 1 is one second
	send(t, p, b.RocketBroker, topic, 0, primitive.NewMessage(topic, []byte("early")))
	holds(t, b.RocketBroker, topic, 4)
	var texts []string
	for _, g := range everything(t, openFor(t, options(b, topic))) {
		texts = append(texts, string(g.Value))
	}
	slices.Sort(texts) // the client does not wait until a transaction has ended, so their order may differ
	if got := strings.Join(texts, ", "); got != "early, keep 1, keep 2, late" {
		t.Errorf("read: %s", got)
	}
}

func transact(t *testing.T, tp official.TransactionProducer, topic, body string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		_, err := tp.SendMessageInTransaction(t.Context(), primitive.NewMessage(topic, []byte(body)))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // meanwhile the client tries to learn the route
	}
}

// With start: latest, messages that are in a live topic at the start are left out. Queues that are added later
// are read whole.
func TestQueuesThatJoinALiveTopicAreReadFromTheirBeginning(t *testing.T) {
	b, p := realBroker(t)
	topic := newTopic(t, b, 1)
	send(t, p, b.RocketBroker, topic, 0, primitive.NewMessage(topic, []byte("old")))
	holds(t, b.RocketBroker, topic, 1)
	o := options(b, topic)
	o.Start, o.End = End{At: brokers.Latest}, End{At: brokers.Never}
	s := openFor(t, o)
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Segments(t.Context(), parts[0], -1, 5)
	if err != nil || len(first) != 1 || first[0].Start != 1 || first[0].Sealed {
		t.Fatalf("%v (%v)", first, err)
	}
	if err := b.CreateTopic(t.Context(), topic, 2); err != nil {
		t.Fatal(err)
	}
	// The official producer learns of a new queue only after half a minute. But it can send to the queue by its
	// number.
	send(t, p, b.RocketBroker, topic, 1, primitive.NewMessage(topic, []byte("a")), primitive.NewMessage(topic, []byte("b")))
	if err := b.Reaches(t.Context(), remoting.Queue{Topic: topic, ID: 1}, 2); err != nil {
		t.Fatal(err)
	}
	later := openWith(t, o, first) // another master
	defer later.Close()
	if parts, err = later.Partitions(t.Context()); err != nil || len(parts) != 2 {
		t.Fatalf("%v (%v)", parts, err)
	}
	later.Joined(parts[1:])
	segs, err := later.Segments(t.Context(), parts[1], -1, 5)
	if err != nil || len(segs) != 1 || segs[0].Start != 0 || segs[0].End != 2 {
		t.Errorf("%v (%v)", segs, err)
	}
}

func TestCommitsAreReadBackAndShownByRocketMQsOwnTool(t *testing.T) {
	b, p := realBroker(t)
	topic := newTopic(t, b, 2)
	for i := range 100 {
		send(t, p, b.RocketBroker, topic, i%2, primitive.NewMessage(topic, fmt.Append(nil, i)))
	}
	holds(t, b.RocketBroker, topic, 50)
	o := options(b, topic)
	o.Group = "g-" + topic
	s := openFor(t, o)
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		offset int64
		back   bool
		want   int64
	}{{20, false, 20}, {40, false, 40}, {30, false, 40}, {30, true, 30}, {47, false, 47}} {
		if err := s.Commit(t.Context(), []sources.Mark{{Partition: parts[0], Position: sources.Position{Offset: step.offset}, Back: step.back}}); err != nil {
			t.Fatal(err)
		}
		has, any, err := s.committed(t.Context(), b.Addr(), partition{"c1", b.Name(), topic, 0})
		if err != nil || !any || has != step.want {
			t.Errorf("after a commit at %d the broker has %d (%v), want %d", step.offset, has, err, step.want)
		}
	}
	tells(t, b, "%RETRY%"+o.Group, "the group has a topic", func(remoting.Route) bool { return true })
	shown := func() (bool, string) {
		out, err := b.Admin(context.WithoutCancel(t.Context()), "consumerProgress", "-g", o.Group)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(line) // topic, broker, queue, broker's offset, consumer's offset, difference
			if len(f) >= 6 && f[0] == topic && f[2] == "0" && f[3] == "50" && f[4] == "47" {
				return true, out
			}
		}
		return false, out
	}
	for deadline := time.Now().Add(5 * time.Minute); ; { // mqadmin shows nothing if the broker does not answer in its 5 seconds
		is, out := shown()
		if is {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("mqadmin consumerProgress does not show 47 of 50 of queue 0:\n%s", out)
		}
	}
	if err := openFor(t, options(b, topic)).Commit(t.Context(), nil); err == nil {
		t.Error("committed without a group")
	}
}

func TestHowLongAMessageStaysIsToldByWhenItWasStored(t *testing.T) {
	b, p := realBroker(t)
	topic := newTopic(t, b, 1)
	send(t, p, b.RocketBroker, topic, 0, primitive.NewMessage(topic, []byte("x")))
	holds(t, b.RocketBroker, topic, 1)
	s := openFor(t, options(b, topic))
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := s.Keeps(t.Context(), []sources.Mark{{Partition: parts[0]}}, time.Hour)
	if err != nil || kept[0].Err != nil {
		t.Fatal(err, kept)
	}
	k := kept[0]
	config, err := b.Client().Config(t.Context(), b.Addr())
	if most, known := fullAt(config); err != nil || !known || most != 85 {
		t.Errorf("with diskMaxUsedSpaceRatio %s the broker's disk counts as full from %v %% on (%v, %v)", config["diskMaxUsedSpaceRatio"], most, known, err)
	}
	state, err := b.Client().Runtime(t.Context(), b.Addr())
	used, err1 := strconv.ParseFloat(state["commitLogDiskRatio"], 64)
	_, err2 := strconv.ParseFloat(state["consumeQueueDiskRatio"], 64)
	if err := errors.Join(err, err1, err2); err != nil || (k.Room < 0) != (used*100 >= 85) {
		t.Errorf("%v of the disk are used (%v), but the guard gets %+v", used, err, k)
	}
	if k.Retention != 72*time.Hour || k.ByAge > 72*time.Hour || k.ByAge < 71*time.Hour || k.Head.Offset != 1 || k.Low.Offset != 0 || k.Blind != "" {
		t.Errorf("the guard gets %+v, want a message that stays for nearly 72 hours", k)
	}
}
