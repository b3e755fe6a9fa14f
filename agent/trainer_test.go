package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// trainer is a client of the trainer socket in Go. It fails by error, so that it
// runs in a test as well as in a process of its own.
type trainer struct {
	streams  []*stream // all of them: the garbage collector would close the socket of an unreachable one
	hello    frame.Hello
	socket   string
	unshared bool // frames come over the socket
	control  *net.UnixConn
	welcome  frame.Welcome
	in       chan message // control messages other than PONG
	reading  sync.WaitGroup
}

type message struct {
	frame.Header
	payload []byte
}

type stream struct {
	t       *trainer
	number  uint32
	opened  frame.Opened
	layout  *frame.Layout
	data    *net.UnixConn
	through uint32
	batches []batch // received, not stepped
	sent    []batch // stepped, not acked
	buf     []byte
	shared  shared
}

// batch has where each row begins, and the lease to which it belongs.
type batch struct {
	number  uint32
	offsets []int64
	segment []int64
	spans   []frame.ResumeSpan
	step    *int64
}

const patience = 10 * time.Minute

func dial(socket string) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// hello sends HELLO and waits for the answer. It returns an ERROR as a *frame.Error.
func hello(socket string, h frame.Hello) (*trainer, error) {
	if h.Incarnation == 0 {
		h.Incarnation = frame.Incarnation(rand.Uint64())
	}
	if h.Protocol == 0 {
		h.Protocol = frame.Protocol
	}
	h.PID = int32(os.Getpid())
	c, err := dial(socket)
	if err != nil {
		return nil, err
	}
	t := &trainer{hello: h, socket: socket, control: c, in: make(chan message, 1024)}
	if err := frame.WriteControl(c, frame.TypeHello, 0, 0, h); err != nil {
		return nil, err
	}
	t.reading.Go(t.read)
	m, err := t.expect(frame.TypeWelcome)
	if err != nil {
		t.drop()
		return nil, err
	}
	return t, json.Unmarshal(m.payload, &t.welcome)
}

func (t *trainer) read() {
	defer close(t.in)
	var buf []byte
	for {
		h, payload, err := frame.ReadControl(t.control, &buf)
		if err != nil {
			return
		}
		t.in <- message{h, bytes.Clone(payload)}
	}
}

// expect skips messages until one has the wanted type. It returns an ERROR on the way as its error.
func (t *trainer) expect(want frame.Type) (message, error) {
	after := time.After(patience)
	for {
		select {
		case m, ok := <-t.in:
			switch {
			case !ok:
				return m, io.ErrUnexpectedEOF
			case m.Type == want:
				return m, nil
			case m.Type == frame.TypeError:
				e := &frame.Error{}
				if err := json.Unmarshal(m.payload, e); err != nil {
					return m, err
				}
				return m, e
			}
		case <-after:
			return message{}, fmt.Errorf("no %s came in time", want)
		}
	}
}

// drop closes the connection without a word.
func (t *trainer) drop() {
	_ = t.control.Close()
	for range t.in {
	}
	t.reading.Wait()
}

func (t *trainer) bye() {
	_ = frame.WriteControl(t.control, frame.TypeBye, 0, 0, nil)
	_, _ = io.Copy(io.Discard, t.control) // until the agent has closed it
	t.drop()
}

func (t *trainer) open(number uint32, o frame.Open) (*stream, error) {
	if o.Ack == "" {
		o.Ack = frame.AckStep
	}
	if err := frame.WriteControl(t.control, frame.TypeOpen, number, 0, o); err != nil {
		return nil, err
	}
	m, err := t.expect(frame.TypeOpened)
	if err != nil {
		return nil, err
	}
	s := &stream{t: t, number: number}
	t.streams = append(t.streams, s)
	if err := json.Unmarshal(m.payload, &s.opened); err != nil {
		return nil, err
	}
	fields, err := s.opened.Schema.Fields()
	if err != nil {
		return nil, err
	}
	if s.layout, err = frame.NewLayout(fields); err != nil {
		return nil, err
	}
	return s, s.attach()
}

func (s *stream) attach() (err error) {
	if s.data, err = dial(s.t.socket); err != nil {
		return err
	}
	s.shared.drop()
	return frame.WriteControl(s.data, frame.TypeAttach, s.number, 0, frame.Attach{Incarnation: s.t.hello.Incarnation, Regions: !s.t.unshared})
}

func (s *stream) credit(n uint32) error {
	var b [frame.HeaderSize]byte
	frame.Header{Type: frame.TypeCredit, Stream: s.number, Number: n}.Put(&b)
	_, err := s.data.Write(b[:])
	return err
}

var errEnd = errors.New("end of data")

// receive takes the next message of the data connection.
func (s *stream) receive() (*frame.Frame, error) {
	h, err := frame.ReadHeader(s.data)
	if err != nil {
		return nil, err
	}
	switch h.Type {
	case frame.TypeEnd:
		return nil, errEnd
	case frame.TypeError:
		e := &frame.Error{}
		if err := frame.ReadPayload(s.data, h, &s.buf); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(s.buf, e); err != nil {
			return nil, err
		}
		return nil, e
	case frame.TypeFrame:
		if err := frame.ReadPayload(s.data, h, &s.buf); err != nil {
			return nil, err
		}
	default:
		return s.receiveShared(h)
	}
	return s.took(h)
}

// took reads the frame that is in buf.
func (s *stream) took(h frame.Header) (*frame.Frame, error) {
	f, err := frame.Read(s.layout, s.buf)
	if err != nil {
		return nil, err
	}
	if int(h.Number) != f.Batches {
		return nil, fmt.Errorf("the header says %d batches, the frame has %d", h.Number, f.Batches)
	}
	s.batches = append(s.batches, batchesOf(f)...)
	return f, nil
}

// batchesOf cuts a frame as the Python client does.
func batchesOf(f *frame.Frame) (out []batch) {
	for k := range f.Batches {
		b := batch{number: f.FirstBatch + uint32(k)}
		from, to := k*f.RowsPerBatch, min(f.Rows, (k+1)*f.RowsPerBatch)
		b.offsets = append(b.offsets, f.Offsets[from:to]...)
		begin := 0
		for _, sp := range f.Spans {
			end := begin + int(sp.Rows)
			if begin < to && end > from {
				shift := sp.LeaseTo - sp.End
				a, z := max(begin, from), min(end, to)
				rs := frame.ResumeSpan{Epoch: sp.Epoch, Term: sp.Term, Sequence: sp.Sequence, Dataset: sp.Dataset,
					Partition: sp.Partition, Pass: sp.Pass, Segment: sp.Segment, LeaseFrom: sp.LeaseFrom, LeaseTo: sp.LeaseTo}
				if a > begin {
					rs.LeaseFrom = f.Offsets[a] + shift
				}
				if z < end {
					rs.LeaseTo = f.Offsets[z] + shift
				}
				b.spans = append(b.spans, rs)
				for range z - a {
					b.segment = append(b.segment, sp.Segment)
				}
			}
			begin = end
		}
		out = append(out, b)
	}
	return out
}

// next returns the n-th batch of those that are not stepped, from 0, the oldest first.
func (s *stream) next(n int) (*batch, error) {
	for len(s.batches) <= n {
		if _, err := s.receive(); err != nil {
			return nil, err
		}
	}
	return &s.batches[n], nil
}

func (s *stream) step(step int64, n int) error {
	s.through += uint32(n)
	for i := range n {
		s.batches[i].step = &step
	}
	s.sent = append(s.sent, s.batches[:n]...)
	s.batches = s.batches[n:]
	return frame.WriteControl(s.t.control, frame.TypeStep, s.number, 0, frame.Step{Step: &step, Batches: uint32(n), Through: s.through})
}

// acked waits until so many batches are durable.
func (s *stream) acked(through uint32) error {
	// A trainer that got no batch waits for no answer.
	for s.through-uint32(len(s.sent)) < through {
		m, err := s.t.expect(frame.TypeAcked)
		if err != nil {
			return err
		}
		var a frame.Acked
		if err := json.Unmarshal(m.payload, &a); err != nil {
			return err
		}
		for len(s.sent) > 0 && s.sent[0].number <= a.Through {
			s.sent = s.sent[1:]
		}
	}
	return nil
}

// resume returns what HELLO says about the stream to another agent.
func (s *stream) resume(open frame.Open) frame.ResumeEntry {
	e := frame.ResumeEntry{Stream: s.number, Open: open, Through: s.through}
	e.Acked = s.through - uint32(len(s.sent))
	for _, list := range [][]batch{s.sent, s.batches} {
		for _, b := range list {
			e.Batches = append(e.Batches, frame.ResumeBatch{Number: b.number, Step: b.step, Rows: uint32(len(b.offsets)), Spans: b.spans})
		}
	}
	return e
}

func (s *stream) close() {
	_ = frame.WriteControl(s.t.control, frame.TypeClose, s.number, 0, nil)
	_ = s.data.Close()
	s.shared.drop()
}
