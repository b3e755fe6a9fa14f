package serve_test

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAWorkerIsGrantedAllOfTheInputAndThenTheEnd(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), nil)
	m.setUp(250)
	a := m.joined("a", 0)
	defer a.hangUp()
	var got string
	for range 3 {
		g := a.grant()
		got += span(g)
		if g.Identity != "files:clicks" || g.Partition != 1 || len(g.Pieces) != 1 || string(g.Pieces[0].Locator) != "loc" || g.Pieces[0].Name != "a.txt" {
			t.Fatalf("the grant does not say what to read: %v", g)
		}
		a.mustAck(g)
	}
	if got != "[0, 100)[100, 200)[200, 250)" {
		t.Fatalf("granted %s", got)
	}
	if g, s, err := a.ask(); err != nil || g != nil || s.State != headracev1.Standing_END {
		t.Fatalf("after the last record a request got %v, %v (%v), want END", g, s, err)
	}
	d, err := m.datasets().Describe(t.Context(), &headracev1.DescribeRequest{Name: "clicks"})
	if err != nil || d.State != "done" || d.Counts.Acked != 250 || d.Unit != "bytes" {
		t.Fatalf("describe: %v %v", d, err)
	}
	m.must(m.stop())
}

func TestASessionThatDoesNotFitIsRefusedWithTheReason(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	for _, c := range []struct {
		what string
		msg  *headracev1.AgentMessage
		code codes.Code
		want string
	}{
		{"no hello", &headracev1.AgentMessage{SentAt: 1}, codes.InvalidArgument, "the first message of a session has no hello"},
		{"another protocol", &headracev1.AgentMessage{Hello: &headracev1.Hello{Protocol: 9, Agent: "a"}}, codes.FailedPrecondition, `agent "a" speaks session protocol 9, this master speaks 1`},
		{"another job", &headracev1.AgentMessage{Hello: &headracev1.Hello{Protocol: 1, Agent: "a", Job: "b"}}, codes.FailedPrecondition, `agent "a" belongs to job "b", this master runs job "job"`},
		{"no name", &headracev1.AgentMessage{Hello: &headracev1.Hello{Protocol: 1}}, codes.InvalidArgument, "an agent needs a name"},
	} {
		_, _, err := m.connect(c.msg)
		if st := status.Convert(err); st.Code() != c.code || st.Message() != c.want || len(st.Details()) == 0 {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestAHelloIsAnsweredWithWhatTheAgentMustKnow(t *testing.T) {
	m := startMaster(t, memstore.New(), func(c *serve.Config) { c.TTL = 0 }) // the default
	defer m.stop()
	a, reply, err := m.connect(hello("a", 1))
	m.must(err)
	defer a.hangUp()
	if reply.Hello == nil || reply.Echo != 1 || reply.Hello.SessionTtlMs != 5000 || reply.Hello.Job != "job" || reply.Hello.Model != "shared" {
		t.Fatalf("hello: %v", reply)
	}
}

func TestAHeartbeatIsEchoed(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	a, _, err := m.connect(hello("a", 1))
	m.must(err)
	defer a.hangUp()
	a.send(&headracev1.AgentMessage{SentAt: 4711})
	m.must(a.until(func(r *headracev1.MasterMessage) bool { return r.Echo == 4711 }))
}

func TestANewerProcessOfAnAgentTakesOver(t *testing.T) {
	m := startMaster(t, memstore.New(), nil)
	defer m.stop()
	old, _, err := m.connect(hello("a", 1))
	m.must(err)
	defer old.hangUp()
	newer, _, err := m.connect(hello("a", 2))
	m.must(err)
	defer newer.hangUp()
	err = old.until(func(*headracev1.MasterMessage) bool { return false })
	if status.Code(err) != codes.AlreadyExists {
		t.Fatalf("the stream of the older process ended with %v", err)
	}
	if _, _, err := m.connect(hello("a", 1)); status.Code(err) != codes.AlreadyExists {
		t.Fatalf("the older process connected again and got %v", err)
	}
}

func TestAgentsAreToldWhenTheMasterStops(t *testing.T) {
	noLeaks(t)
	m := startMaster(t, memstore.New(), nil)
	a, _, err := m.connect(hello("a", 1))
	m.must(err)
	defer a.hangUp()
	m.cancel()
	if err := a.until(func(*headracev1.MasterMessage) bool { return false }); status.Code(err) != codes.Unavailable {
		t.Fatalf("when the master stopped, the agent got %v", err)
	}
	m.must(m.stop())
}
