package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/proof/memsource"
	realmaster "github.com/headrace/headrace/master"
	"github.com/headrace/headrace/sources"
)

func init() { dataset.Register(memsource.Kind) }

const rollingSpec = `
name: rolling
memory: {log: %s, end: never}
decode: {format: lines}
lease: {initial: 40, min: 8, max: 400, target: 200ms}
guard: {every: 100ms}
on_loss: continue
`

// wholeMaster is the whole process of a master, over a state folder.
type wholeMaster struct {
	t          *testing.T
	job, model string
	state      string
	addr       string
	node       string // name of the agent; "" means "node"
	source     realmaster.Opener
	stop       func()
}

func newWholeMaster(t *testing.T) *wholeMaster {
	m := &wholeMaster{t: t, job: "job", model: "shared", state: filepath.Join(t.TempDir(), "state"),
		source: func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
			return spec.Open(dataset.Opening{Known: known, Logger: logger(t)})
		}}
	m.begin()
	return m
}

// begin starts the first process.
func (m *wholeMaster) begin() {
	m.t.Helper()
	m.addr = ownPort(m.t)
	m.start()
	m.t.Cleanup(func() { m.stop() })
}

func (m *wholeMaster) start() {
	m.t.Helper()
	one := must(realmaster.New(realmaster.Config{Job: m.job, Model: m.model, Version: "test", State: m.state, Listen: m.addr, Logger: logger(m.t).With("who", "master"),
		AheadSegments: 3, HeadPatience: 50 * time.Millisecond, SessionTTL: longTTL,
		OpenSource: m.source}))(m.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- one.Run(ctx) }()
	select {
	case <-one.Ready():
	case err := <-ended:
		m.t.Fatal(err)
	}
	m.addr = one.Addr()
	m.stop = sync.OnceFunc(func() {
		cancel()
		check(m.t, <-ended)
	})
}

func (m *wholeMaster) conn() *grpc.ClientConn {
	return must(link.Dial(link.Target{Address: m.addr, State: m.state}, link.TLS{}))(m.t)
}

func (m *wholeMaster) datasets(do func(pb.DatasetsClient) error) {
	m.t.Helper()
	conn := m.conn()
	defer conn.Close()
	check(m.t, do(pb.NewDatasetsClient(conn)))
}

// until asks for the dataset until ok returns true.
func (m *wholeMaster) until(what string, ok func(*pb.Dataset) bool) *pb.Dataset {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	for {
		var d *pb.Dataset
		m.datasets(func(c pb.DatasetsClient) error {
			reply, err := c.List(m.t.Context(), &pb.ListRequest{})
			if err == nil {
				d = reply.Datasets[0]
			}
			return err
		})
		if ok(d) {
			return d
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			m.t.Fatalf("this did not happen in time: %s; the dataset has %v, reason %q", what, d.Counts, d.Reason)
		}
	}
}

func (m *wholeMaster) agent(t *testing.T) *running {
	conn := m.conn()
	return startWith(t, conn, agent.Config{Name: cmp.Or(m.node, "node"), Conn: conn, Socket: socketIn(t), Version: "test", ShareFrom: 1, Logger: logger(t).With("who", "agent"),
		Open: func(ctx context.Context, spec *dataset.Spec) (sources.Source, error) { return m.source(ctx, spec, nil) }})
}

// rollReader is a trainer that steps every batch at once and counts records by partition,
// segment and offset.
type rollReader struct {
	mu    sync.Mutex
	times map[[3]int64]int
	ended chan struct{}
	s     *stream
	tr    *trainer
}

func readAll(t *testing.T, socket string) *rollReader {
	t.Helper()
	wait := int64(5)
	r := &rollReader{times: map[[3]int64]int{}, ended: make(chan struct{})}
	r.tr = must(hello(socket, frame.Hello{WorldSize: 1}))(t)
	r.read(t, frame.Open{Dataset: "rolling", Rows: 10, Track: true, MaxWaitMS: &wait})
	return r
}

// read steps every batch of a stream at once.
func (r *rollReader) read(t *testing.T, open frame.Open) {
	t.Helper()
	r.s = must(r.tr.open(1, open))(t)
	check(t, r.s.credit(8))
	go func() {
		defer close(r.ended)
		for step := int64(1); ; step++ {
			f, err := r.s.receive()
			if err != nil {
				return
			}
			row := 0
			r.mu.Lock()
			for _, sp := range f.Spans {
				for range sp.Rows {
					r.times[[3]int64{int64(sp.Partition), sp.Segment, f.Offsets[row]}]++
					row++
				}
			}
			r.mu.Unlock()
			if r.s.step(step, f.Batches) != nil || r.s.credit(uint32(f.Batches)) != nil {
				return
			}
		}
	}()
}

func (r *rollReader) leave() {
	r.s.close()
	<-r.ended
	r.tr.bye()
}

// has counts the records that came, and fails on one that came twice.
func (r *rollReader) has(t *testing.T) int {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, n := range r.times {
		if n != 1 {
			t.Errorf("record %v came %d times, want once", at, n)
		}
	}
	return len(r.times)
}

func (r *rollReader) until(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(patience); r.has(t) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("only %d of %d records came in time", r.has(t), n)
		}
	}
	if got := r.has(t); got != n {
		t.Fatalf("%d records came, %d were appended", got, n)
	}
}

func appendTo(l *memsource.Log, partition, n int) {
	for i := range n {
		l.Append(partition, fmt.Appendf(nil, "record %d", i))
	}
}

// There are many segments before anybody reads. More roll over while records are read, and while the
// master is down. Each record comes once. The source is told what it must keep, and may trim the rest.
func TestALiveSourceWhoseSegmentsRollOverIsFollowed(t *testing.T) {
	log := memsource.NewLog("follow", 3)
	total := 0
	for p := range 3 {
		for range 10 {
			appendTo(log, p, 7)
			log.Roll(p)
			total += 7
		}
	}
	m := newWholeMaster(t)
	m.datasets(func(c pb.DatasetsClient) error {
		_, err := c.Apply(t.Context(), &pb.ApplyRequest{Yaml: fmt.Sprintf(rollingSpec, "follow")})
		return err
	})
	a := m.agent(t)
	r := readAll(t, a.socket)
	r.until(t, total)
	for i := range 30 { // each time the reader waits in a lead, and the segment is sealed before the lead's end
		appendTo(log, i%3, 5)
		total += 5
		if i%2 == 0 {
			r.until(t, total)
		}
		log.Roll(i % 3)
		if i%5 == 0 {
			log.Roll(i % 3) // an empty segment
		}
	}
	r.until(t, total)

	m.stop()
	for p := range 3 {
		appendTo(log, p, 9)
		log.Roll(p)
		appendTo(log, p, 2)
		total += 11
	}
	m.start()
	r.until(t, total)
	late := log.AddPartition()
	appendTo(log, 3, 6)
	total += 6
	r.until(t, total)
	m.until("all is acked", func(d *pb.Dataset) bool {
		return d.Counts.Acked == d.Counts.Listed && d.Counts.Leased == 0 || d.Counts.Acked == int64(total)*4
	})

	if !log.Begun(late) {
		t.Error("the source was not told to keep a partition that joined later")
	}
	trimmed := 0
	for end := time.Now().Add(patience); trimmed == 0; time.Sleep(5 * time.Millisecond) {
		if trimmed = log.Trim(0, 2); time.Now().After(end) {
			at, _ := log.Kept("memory:follow/a")
			t.Fatalf("the source may trim nothing; it must keep everything from %+v on", at)
		}
	}
	appendTo(log, 0, 8)
	log.Roll(0)
	appendTo(log, 0, 8)
	r.until(t, total+16)
	if d := m.until("it runs", func(d *pb.Dataset) bool { return d.State == "running" }); d.Counts.Excluded != 0 {
		t.Errorf("%d bytes were excluded, want none: %v", d.Counts.Excluded, d)
	}
	r.leave()
	m.datasets(func(c pb.DatasetsClient) error {
		reply, err := c.Delete(t.Context(), &pb.DeleteRequest{Name: "rolling"})
		if reply.GetAtSource() == "" {
			t.Error("the answer to Delete does not say what is removed at the source")
		}
		return err
	})
	if _, kept := log.Kept(late); kept || log.Begun(late) {
		t.Error("the source still keeps records for a deleted dataset")
	}
}

// Whole segments that are trimmed before they are read are excluded, each with its exact range. All
// other records are read once.
func TestWholeSegmentsThatAreLostAreExcludedExactly(t *testing.T) {
	log := memsource.NewLog("lose", 1)
	appendTo(log, 0, 10)
	m := newWholeMaster(t)
	m.datasets(func(c pb.DatasetsClient) error {
		_, err := c.Apply(t.Context(), &pb.ApplyRequest{Yaml: fmt.Sprintf(rollingSpec, "lose")})
		return err
	})
	a := m.agent(t)
	r := readAll(t, a.socket)
	r.until(t, 10)
	m.until("it is acked", func(d *pb.Dataset) bool { return d.Counts.Acked == 10*4 })
	r.leave()
	for range 5 {
		log.Roll(0)
		appendTo(log, 0, 10)
	}
	m.until("all of it is listed", func(d *pb.Dataset) bool { return d.Counts.Listed == 60*4 })
	log.Lose(0, 3) // the segment that was read, and two that were not
	m.until("the loss is told", func(d *pb.Dataset) bool { return d.Counts.Excluded == 2*40 })
	r = readAll(t, a.socket)
	r.until(t, 30)
	if d := m.until("all is acked", func(d *pb.Dataset) bool { return d.Counts.Acked == 40*4 }); d.State != "running" || d.Counts.Excluded != 2*40 {
		t.Errorf("the dataset is %v, want running with 80 bytes excluded", d)
	}
	r.leave()
}
