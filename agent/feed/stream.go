package feed

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
)

// Sizes and times of a stream's buffers.
const (
	frameBytes  = 2 << 20               // a frame leaves at about this size
	frameTime   = 50 * time.Millisecond // of the trainer's own pace that a frame may hold
	streamBytes = 64 << 20              // sealed frames waiting, at most
)

// stream is one OPENed stream of a trainer.
type stream struct {
	id      hold.Stream
	t       *trainer
	ds      *Dataset
	rows    int
	track   bool
	virtual uint32        // bit_exact: the virtual rank that it reads, from 1; else 0
	maxWait time.Duration // 0: none
	rounds  *hold.Rounds  // nil: its batches are no rounds
	dec     *decode.Decoder
	old     *decode.Decoder // of the backfill; nil: there is none
	pool    *frame.Pool

	// Both belong to the cutter of the connection, and the next connection's cutter goes on with them.
	decs map[decoderOf]*decode.Decoder
	errs map[errorsOf]uint64 // decode errors reported so far

	wg   sync.WaitGroup // attached connections, one at most
	last frame.Stats    // guarded by trainer.mu

	buffered atomic.Int64
	wakeCut  chan struct{}
	wakeSend chan struct{}

	regions *regions // of the connection; nil: the trainer wants none

	mu        sync.Mutex
	conn      net.Conn
	closed    bool
	credit    uint32
	credited1 bool // the first CREDIT has come
	window    float64
	leases    []*lease
	queue     []*work
	queued    int  // batches in queue
	recut     bool // a lease lost rows that were cut: cut again from the delivered position
	sending   bool // the sender has a frame of the queue at the Desk
	blocked   bool // the sender waits for the session
	state     pb.Standing_State
	allOut    bool // since the newest grant, the master has said that nothing else is there to read
	said      frame.State
	ended     bool // END
	failed    bool
	pace      float64 // batches per second, 0 unknown
	delivered uint32
	stepped   uint32     // guarded by trainer.alone
	inHand    uint32     // batches that were delivered and are not stepped; guarded by trainer.alone
	away      bool       // it is closed; guarded by trainer.alone
	newest    hold.Lease // of leases
	closing   uint32     // with rounds: the batch to end where it is
	round     decision   // with rounds: what the master has decided
	roundSaid said       // of it, on this connection
}

// open answers OPEN.
func (t *trainer) open(ctx context.Context, number uint32, o frame.Open) error {
	st, err := t.newStream(ctx, number, o)
	if err != nil {
		return err
	}
	if a := t.srv.cfg.Desk.Do(&hold.Open{Stream: st.id, Dataset: st.ds.ID, Virtual: st.virtual, Tracked: st.track, Strict: st.ds.Spec.Order == "strict", Rounds: st.rounds}); a.Invalid != "" {
		t.removeStream(number)
		return invalid(a.Invalid, "")
	}
	schema := st.dec.Schema()
	opened := frame.Opened{Schema: frame.SchemaOf(&schema), DatasetID: st.ds.ID, Unit: st.ds.Unit}
	if x := st.ds.Spec.BitExact; x != nil {
		opened.VirtualRanks = uint32(x.VirtualRanks)
	}
	t.out.send(frame.TypeOpened, number, opened)
	return nil
}

func (t *trainer) newStream(ctx context.Context, number uint32, o frame.Open) (*stream, error) {
	switch {
	case number == 0:
		return nil, invalid("OPEN names no stream", "streams count from 1")
	case o.Rows == 0:
		return nil, invalid("rows is 0", "ask for at least one row a batch")
	case o.Ack != frame.AckStep && o.Ack != frame.AckAuto && o.Ack != "":
		return nil, invalid(fmt.Sprintf("ack %q", o.Ack), `it is "step" or "auto"`)
	case o.MaxWaitMS != nil && *o.MaxWaitMS < 0:
		return nil, invalid(fmt.Sprintf("max_wait_ms %d", *o.MaxWaitMS), "")
	}
	ds, err := t.srv.cfg.Catalog.Find(ctx, o.Dataset)
	if err != nil {
		return nil, err
	}
	st := &stream{
		id: hold.Stream{Worker: t.number, Number: number}, t: t, ds: ds, rows: int(o.Rows), track: o.Track,
		wakeCut: make(chan struct{}, 1), wakeSend: make(chan struct{}, 1),
	}
	if o.MaxWaitMS != nil {
		st.maxWait = max(time.Millisecond, time.Duration(*o.MaxWaitMS)*time.Millisecond)
	}
	if err := st.exact(&o); err != nil {
		ds.Close()
		return nil, err
	}
	if err := st.inRounds(&o); err != nil {
		ds.Close()
		return nil, err
	}
	if err := st.compile(o.Columns); err != nil {
		ds.Close()
		return nil, invalid(err.Error(), "")
	}
	t.mu.Lock()
	_, taken := t.streams[number]
	if !taken {
		t.streams[number] = st
	}
	t.mu.Unlock()
	if taken {
		ds.Close()
		return nil, invalid(fmt.Sprintf("stream %d is open already", number), "number streams from 1 up")
	}
	if ds.Spec.Isolates() {
		t.isolates.Store(true)
	}
	t.srv.streams.Add(1)
	return st, nil
}

// exact takes the virtual rank that an OPEN of a bit_exact dataset names. An OPEN that
// names none is told how many there are, and gets no batch.
func (st *stream) exact(o *frame.Open) *frame.Error {
	x := st.ds.Spec.BitExact
	switch {
	case x == nil && o.Virtual == nil:
	case x == nil:
		return invalid(fmt.Sprintf("virtual rank %d of dataset %s, which has none", *o.Virtual, st.ds.Name), "only a dataset with bit_exact has virtual ranks")
	case o.MaxWaitMS != nil:
		return invalid(fmt.Sprintf("max_wait_ms %d of dataset %s, which is bit_exact", *o.MaxWaitMS, st.ds.Name), "its batches never depend on time: leave max_wait out")
	case o.Virtual == nil:
	case *o.Virtual >= uint32(x.VirtualRanks):
		return invalid(fmt.Sprintf("virtual rank %d of dataset %s, which has %d", *o.Virtual, st.ds.Name, x.VirtualRanks), "virtual ranks count from 0")
	default:
		st.virtual = *o.Virtual + 1
	}
	return nil
}

func (st *stream) compile(columns []string) (err error) {
	if st.dec, err = decode.Compile(st.ds.Spec, decode.WithColumns(columns), decode.WithSchemas(decode.SchemasOf(st.ds.Source))); err != nil {
		return err
	}
	if old := st.ds.Backfill; old != nil { // it makes the same columns: a spec is checked
		if st.old, err = decode.Compile(old.Spec, decode.WithColumns(columns), decode.Beside(st.dec), decode.WithSchemas(decode.SchemasOf(old.Source))); err != nil {
			return err
		}
	}
	batch := st.rows * st.dec.Layout().RowSize()
	st.pool, err = frame.NewPool(st.dec.Layout(), st.rows, st.rows*max(1, frameBytes/max(1, batch)))
	return err
}

// attach takes the stream's data connection. It returns false if the stream has one.
// shared says that the trainer takes frames in shared memory.
func (st *stream) attach(c net.Conn, shared bool) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn != nil || st.closed {
		return false
	}
	st.conn = c
	st.wg.Add(1)
	if shared {
		st.regions = newRegions(int(st.t.srv.cfg.BufferBytes / max(1, st.t.srv.streams.Load())))
	}
	// Rows that were cut for an earlier connection and not delivered are cut again.
	st.credit, st.credited1, st.recut, st.roundSaid = 0, false, true, said{}
	return true
}

func (st *stream) detach() {
	defer st.wg.Done()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.conn = nil
	st.drain()
	if st.regions != nil {
		st.regions.close()
		st.regions = nil
	}
}

// fresh is an empty frame, in shared memory if some is free.
func (st *stream) fresh() *work {
	w := &work{rows: st.rows}
	if st.regions != nil {
		w.region = st.regions.take(st.pool.ArenaSize())
	}
	if w.region == nil {
		w.b = st.pool.Get()
	} else {
		w.b = st.pool.GetIn(w.region.memory)
	}
	return w
}

// split moves all but the first n batches of w to a fresh frame.
func (st *stream) split(w *work, n int) *work {
	rest := st.fresh()
	if err := w.split(n, rest); err != nil { // builders of one pool always fit
		panic("feed: " + err.Error())
	}
	return rest
}

// discard frees w, whether it was sent or not.
func (st *stream) discard(w *work) {
	st.pool.Put(w.b)
	if w.region != nil {
		st.regions.back(w.region)
	}
}

// drain empties the queue. Its rows count as undelivered.
func (st *stream) drain() {
	for i, w := range st.queue {
		st.account(-w.bytes)
		st.discard(w)
		st.queue[i] = nil
	}
	st.queue, st.queued = st.queue[:0], 0
}

func (st *stream) account(n int64) {
	st.buffered.Add(n)
	st.t.srv.buffered.Add(n)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// closeStream is called when the trainer uses no row of the stream any more.
func (t *trainer) closeStream(number uint32) {
	st := t.stream(number)
	if st == nil {
		return
	}
	t.removeStream(number)
	t.alone.closed(st)
	t.srv.cfg.Desk.Do(&hold.Close{Stream: st.id})
}

func (t *trainer) removeStream(number uint32) {
	t.mu.Lock()
	st := t.streams[number]
	delete(t.streams, number)
	t.mu.Unlock()
	if st != nil {
		st.stop()
	}
}

func (t *trainer) closeStreams() {
	t.mu.Lock()
	all := t.streams
	t.streams = map[uint32]*stream{}
	t.mu.Unlock()
	for _, st := range all {
		st.stop()
	}
}

// stop ends the pipeline; the source closes when it no longer reads.
func (st *stream) stop() {
	st.mu.Lock()
	st.closed = true
	if st.conn != nil {
		_ = st.conn.SetDeadline(time.Unix(1, 0))
	}
	st.mu.Unlock()
	st.wg.Wait()
	st.t.srv.streams.Add(-1)
	st.ds.Close()
}

// credited adds to the batches that may be sent. again reports that it is not the first
// credit.
func (st *stream) credited(n uint32) (again bool) {
	st.mu.Lock()
	again = st.credited1
	st.credited1 = true
	st.credit += min(n, 1<<30-st.credit)
	st.window = max(float64(st.credit), st.window*0.95)
	st.mu.Unlock()
	poke(st.wakeSend)
	poke(st.wakeCut)
	return again
}

// The core's decisions arrive in the methods below, under the Desk's lock.

func (st *stream) granted(g hold.Granted) {
	st.mu.Lock()
	st.leases = append(st.leases, &lease{
		id: g.Lease, grant: g.Grant, token: g.Token, end: g.Grant.LeaseEnd,
		read: g.Grant.LeaseStart, sent: g.Grant.LeaseStart, cut: g.Grant.LeaseStart,
	})
	st.state, st.newest, st.allOut = g.Standing, g.Lease, false
	restored := st.said.State == frame.StateRestore && g.Standing != pb.Standing_RESTORE
	st.mu.Unlock()
	if restored { // so that the trainer does not go on saying that it waits for the others' restore
		st.say(frame.StateWait, "")
	}
	poke(st.wakeCut)
}

func (st *stream) lease(id hold.Lease) *lease {
	for _, l := range st.leases {
		if l.id == id {
			return l
		}
	}
	return nil
}

func (st *stream) shrunk(e hold.LeaseEnd) {
	st.mu.Lock()
	if l := st.lease(e.Lease); l != nil && e.End < l.end {
		l.end = e.End
		st.recut = st.recut || l.cut > l.end
	}
	st.mu.Unlock()
	poke(st.wakeCut)
}

func (st *stream) stateChanged(s pb.Standing_State, reason string) {
	st.mu.Lock()
	st.state, st.allOut = s, s == pb.Standing_WAIT
	switch s {
	case pb.Standing_END:
		st.ended = st.rounds == nil // else the end is a decision of all ranks
	case pb.Standing_FAILED, pb.Standing_DELETED:
		st.failed = true
	}
	st.mu.Unlock()
	if word, ok := stateWords[s]; ok {
		st.say(word, reason)
	}
	poke(st.wakeCut)
	poke(st.wakeSend)
}

var stateWords = map[pb.Standing_State]string{
	pb.Standing_WAIT: frame.StateWait, pb.Standing_DRAINED: frame.StateDrained, pb.Standing_PAUSED: frame.StatePaused,
	pb.Standing_FAILED: frame.StateFailed, pb.Standing_RECOVERING: frame.StateRecovering, pb.Standing_DELETED: frame.StateDeleted,
	pb.Standing_RESTORE: frame.StateRestore,
}

// say tells the trainer what the stream waits for, once.
func (st *stream) say(state, reason string) {
	next := frame.State{State: state, Reason: reason}
	st.mu.Lock()
	same := st.said == next
	st.said = next
	st.mu.Unlock()
	if !same {
		st.t.out.send(frame.TypeState, st.id.Number, next)
	}
}

// live is called when the session is good again.
func (st *stream) live() {
	st.mu.Lock()
	blocked, lost := st.blocked, st.said.State == frame.StateMasterLost
	st.blocked = false
	st.mu.Unlock()
	if blocked {
		poke(st.wakeSend)
	}
	if lost {
		st.say(frame.StateWait, "")
	}
}
