package demo

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/examples/clicks"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/leaks"
)

// The official RocketMQ client, with which the demo compares, starts a goroutine when its package is
// initialised. It has no way to end it.
func TestMain(m *testing.M) {
	leaks.Main(m, goleak.IgnoreTopFunction("github.com/patrickmn/go-cache.(*janitor).Run"))
}

func TestTheDatasetIsValidAndTheExampleReadsTheSameWay(t *testing.T) {
	ours, err := dataset.Parse([]byte(datasetYAML("/data")), "demo")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := dataset.ReadFile("../../../examples/clicks/clicks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := documents[0].Spec
	a, err := ours.Schema()
	if err != nil {
		t.Fatal(err)
	}
	b, err := example.Schema()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("the demo's schema is %+v, the example's %+v", a, b)
	}
	live, err := dataset.Parse([]byte("name: x\n"+kafkaSource("127.0.0.1:9092", topicName)+"\n"+decodeYAML()), "demo")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := live.Schema(); err != nil || !reflect.DeepEqual(a, c) || !live.Live() {
		t.Errorf("with a topic the schema is %+v (%v), live: %v", c, err, live.Live())
	}
	for _, spec := range []*dataset.Spec{ours, live, example} {
		if h := spec.Decode.Columns[2].Hash; h.Buckets != clicklog.Buckets || h.Salt != clicklog.Salt {
			t.Errorf("categories are hashed with %+v, the truth with %d %q", h, clicklog.Buckets, clicklog.Salt)
		}
	}
	if !strings.Contains(string(clicks.Trainer), "BUCKETS = 13, 26, 1 << 15") {
		t.Error("train.py and clicklog have different numbers of buckets")
	}
}

func TestATrainerThatHadToGiveUpIsStartedAgainAndAnyOtherEndIsAnError(t *testing.T) {
	for _, c := range []struct {
		script string
		why    string
	}{
		{`echo "headrace: the agent at a.sock was not heard for 7.1 s, and what this process holds goes to others: ending process 7"; kill -9 $$`,
			"the agent at a.sock was not heard for 7.1 s, and what this process holds goes to others: ending process 7"},
		{`echo "headrace: the agent ends process 7: the master was not heard for 5s"; kill -15 $$`, "the agent ends process 7: the master was not heard for 5s"},
		{`echo Traceback; echo "headrace._errors.Fenced: this process is not of the group any more"; exit 1`, "this process is not of the group any more"},
		{`echo "ValueError: batches=2"; exit 1`, ""},
		{`kill -9 $$`, ""},
		{`exit 0`, ""},
	} {
		ps := &processes{dir: t.TempDir()}
		// The output of an earlier process of this trainer gives no reason for the end of this one.
		if err := os.WriteFile(filepath.Join(ps.dir, "trainer-0.log"), []byte("headrace: the agent ends process 6: old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := ps.start("trainer", "trainer-0", nil, "sh", "-c", c.script)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done
		if why := p.gaveUp(); why != c.why {
			t.Errorf("%s: %q", c.script, why)
		}
		running, err := ps.start("agent", "running", nil, "sleep", "60")
		if err != nil {
			t.Fatal(err)
		}
		tm := &team{agents: [agents]*process{running, running}, master: running, trainers: [trainers]*process{running, p, running, running}}
		all, again, err := tm.trained()
		if wantErr := c.why == "" && p.Err != nil; all || (err != nil) != wantErr || (len(again) == 1) != (c.why != "") {
			t.Errorf("%s: all %v, again %v, %v", c.script, all, again, err)
		}
		tm.gaveUp[1] = maxGaveUp
		if _, again, err := tm.trained(); p.Err != nil && (err == nil || again != nil) {
			t.Errorf("%s: a trainer that has given up too often is started again: %v, %v", c.script, again, err)
		}
		ps.stop("agent", 3*time.Second)
	}
}

func TestStopKillsWhatDoesNotEndInTime(t *testing.T) {
	ps := &processes{dir: t.TempDir()}
	deaf, err := ps.start("trainer", "deaf", nil, "sh", "-c", `trap "" TERM; echo ready; while :; do sleep 1; done`)
	if err != nil {
		t.Fatal(err)
	}
	good, err := ps.start("agent", "good", nil, "sleep", "100000")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { text, _ := os.ReadFile(deaf.Log); return len(text) > 0 })
	late := append(ps.stop("trainer", 10*time.Millisecond), ps.stop("agent", time.Minute)...)
	if len(late) != 1 || late[0] != "deaf" || !good.Ended() || !deaf.Ended() {
		t.Errorf("late: %v", late)
	}
	if err := syscall.Kill(-deaf.Pid(), 0); err != syscall.ESRCH {
		waitFor(t, func() bool { return syscall.Kill(-deaf.Pid(), 0) == syscall.ESRCH })
	}
	if late := ps.stop("trainer", 3*time.Second); late != nil {
		t.Errorf("stopped twice: %v", late)
	}
}

func TestAProcessThatEndsByItselfShowsTheEndOfItsOutput(t *testing.T) {
	ps := &processes{dir: t.TempDir()}
	p, err := ps.start("master", "master", nil, "sh", "-c", "echo port in use; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = answer(t.Context(), p, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "port in use") {
		t.Errorf("got %v", err)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true within five minutes")
		}
		if err := pause(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSettingsOfTheUsersOwnJobDoNotReachTheDemo(t *testing.T) {
	t.Setenv("HEADRACE_MASTER", "10.0.0.1:7070")
	for _, v := range child.Environment() {
		if strings.HasPrefix(v, "HEADRACE_") {
			t.Errorf("%s", v)
		}
	}
}

func TestProgressIsPrintedEveryFewSecondsWhereItCanNotBeRepainted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newStory(&out)
		for range 60 {
			s.progress("at work")
			time.Sleep(tick)
		}
		if n := strings.Count(out.String(), "at work\n"); n != 2 {
			t.Errorf("%d lines in 15 s:\n%s", n, out.String())
		}
	})
}

func TestAFolderThatHoldsSomethingIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Options{Dir: dir}).folder(); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("got %v", err)
	}
}

func TestAMissingInterpreterGetsAClearAnswer(t *testing.T) {
	_, _, err := checkPython(filepath.Join(t.TempDir(), "python9"))
	if err == nil || !strings.Contains(err.Error(), "HEADRACE_PYTHON") {
		t.Errorf("got %v", err)
	}
}

// state answers each State call with the next lease from a channel.
type state struct {
	headracev1.UnimplementedDatasetsServer
	leases chan *headracev1.LeaseState
	last   *headracev1.LeaseState
}

func (s *state) State(context.Context, *headracev1.StateRequest) (*headracev1.StateReply, error) {
	select {
	case s.last = <-s.leases:
	default:
	}
	return &headracev1.StateReply{Partitions: []*headracev1.PartitionState{{Number: 1, Lease: []*headracev1.LeaseState{s.last}}}}, nil
}

func TestAReleaseIsAnOverlappingLeaseOfAnotherHolder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &state{leases: make(chan *headracev1.LeaseState, 3)}
	folder := t.TempDir()
	if err := access.Keep(folder); err != nil {
		t.Fatal(err)
	}
	door, err := link.NewDoor(l, link.TLS{}, &access.Book{State: folder}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(door.Credentials()))
	headracev1.RegisterDatasetsServer(server, s)
	go func() { _ = server.Serve(door) }() // ends with Stop
	defer server.Stop()
	books, err := newLedger(l.Addr().String(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer books.close()

	lost := []lease{{partition: 1, prefix: 100, end: 200, rank: 1}}
	k := &killer{books: books}
	s.leases <- &headracev1.LeaseState{Rank: 1, Prefix: 150, End: 200} // still the first holder's
	s.leases <- &headracev1.LeaseState{Rank: 2, Prefix: 200, End: 300} // another holder's, but beside the first lease
	s.leases <- &headracev1.LeaseState{Rank: 2, Prefix: 150, End: 160}
	before := child.Monotonic()
	at := <-k.watchRelease(t.Context(), lost, func(l lease) bool { return l.rank == 1 })
	if took := time.Duration(at - before); took < 2*poll || at == 0 {
		t.Errorf("released after %v, want after 2 polls: the first two answers show no release", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if at := <-k.watchRelease(ctx, lost, func(lease) bool { return true }); at != 0 {
		t.Errorf("a watch that was stopped reports a release at %d, want 0", at)
	}
}

func TestTheLastLineNamesTheNextCommand(t *testing.T) {
	for source, want := range map[string]string{
		Files: "init DATA", Kafka: "init kafka://HOST:9092/TOPIC", Pulsar: "init pulsar://HOST:6650/TOPIC?admin=http://HOST:8080", RocketMQ: "init rocketmq://HOST:9876/TOPIC",
	} {
		if got := nextCommand(Options{Source: source}, "/opt/headrace"); !strings.HasSuffix(got, "\n  /opt/headrace "+want) {
			t.Errorf("%s: %s", source, got)
		}
	}
}
