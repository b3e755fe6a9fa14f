package feed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
)

// first reads the first message of a connection: HELLO, ATTACH or ENDED.
func (s *Server) first(c *net.UnixConn, cred *unix.Ucred) error {
	var buf []byte
	h, payload, err := frame.ReadControl(c, &buf)
	if err != nil {
		if errors.Is(err, frame.ErrProtocol) {
			return s.refuse(c, 0, wireError(err))
		}
		return err
	}
	switch h.Type {
	case frame.TypeHello:
		hello, err := frame.Decode[frame.Hello](h.Type, payload)
		if err != nil {
			return s.refuse(c, 0, wireError(err))
		}
		return s.control(c, cred, hello)
	case frame.TypeEnded:
		ended, err := frame.Decode[frame.Ended](h.Type, payload)
		if err != nil {
			return s.refuse(c, 0, wireError(err))
		}
		s.fates.say(ended.Group, ended.Crash)
		return nil
	case frame.TypeAttach:
		attach, err := frame.Decode[frame.Attach](h.Type, payload)
		if err != nil {
			return s.refuse(c, h.Stream, wireError(err))
		}
		return s.data(c, cred, attach, h.Stream)
	}
	return s.refuse(c, h.Stream, &frame.Error{Code: frame.CodeProtocol, Message: fmt.Sprintf("a connection begins with HELLO or ATTACH, not %s", h.Type)})
}

// control owns one control connection from HELLO to its end.
func (s *Server) control(c *net.UnixConn, cred *unix.Ucred, hello frame.Hello) error {
	if hello.Protocol != frame.Protocol {
		return s.refuse(c, 0, &frame.Error{
			Code:    frame.CodeProtocol,
			Message: fmt.Sprintf("client %s speaks protocol %d of the trainer socket, this agent (%s) speaks %d", hello.Client, hello.Protocol, s.cfg.Version, frame.Protocol),
			Hint:    "install the headrace package of the agent's version",
		})
	}
	if hello.WorldSize > 0 && hello.Rank >= hello.WorldSize {
		return s.refuse(c, 0, invalid(fmt.Sprintf("rank %d of a world of %d", hello.Rank, hello.WorldSize), "ranks count from 0"))
	}
	proc, err := watch(int(cred.Pid))
	if err != nil {
		s.cfg.Logger.Warn("the agent cannot watch a trainer's process, and notices its end only when its connection closes", "rank", hello.Rank, "pid", hello.PID, "reason", err)
		proc = nil
	} else {
		defer proc.close()
		if hello.Generation == 0 && proc.gone() {
			return nil // it ended before it was let in
		}
	}
	if _, known := resumeWords[hello.ResumeFrom]; !known {
		return s.refuse(c, 0, invalid(fmt.Sprintf("resume %q", hello.ResumeFrom), "it is bound, acked or start"))
	}
	ctx, cancel := context.WithCancel(s.stopped)
	defer cancel()
	t := &trainer{
		srv: s, hello: hello, cred: cred, proc: proc, conn: c, out: newOutbox(),
		joined: make(chan hold.Joined, 1), left: make(chan struct{}), ctx: ctx, streams: map[uint32]*stream{},
	}
	if group, err := unix.Getpgid(int(cred.Pid)); err == nil {
		t.group = group
	}
	resume, err := t.resume(ctx, hello.Resume)
	if err != nil {
		return s.refuse(c, 0, wireError(err))
	}
	if refusal := s.join(t, resume); refusal != nil {
		t.closeStreams()
		return s.refuse(c, 0, refusal)
	}
	_ = c.SetReadDeadline(time.Time{})
	t.wg.Go(func() { t.out.drain(ctx, c) })
	t.wg.Go(func() { t.greet(ctx) })
	if proc != nil {
		// A process that ends closes its socket after everything that it wrote. If a
		// child has inherited the socket, it stays open.
		t.wg.Go(func() {
			select {
			case <-proc.exited:
				_ = c.SetReadDeadline(time.Now().Add(inherited))
			case <-ctx.Done():
			}
		})
	}
	bye, err := t.listen(ctx, c)
	cancel()
	t.wg.Wait()
	t.closeStreams()
	t.depart(bye)
	close(t.left)
	s.mu.Lock()
	delete(s.trainers, t.number)
	s.mu.Unlock()
	return err
}

// join numbers the trainer and tells the Desk of it, which answers with Joined.
func (s *Server) join(t *trainer, resume []hold.Resume) *frame.Error {
	t.number = s.cfg.Desk.NextWorker()
	t.mu.Lock()
	for _, st := range t.streams {
		st.id.Worker = t.number
	}
	t.mu.Unlock()
	s.mu.Lock()
	s.trainers[t.number] = t
	s.mu.Unlock()
	h := &t.hello
	before := s.stepFiles.know(h.Incarnation, t.number)
	a := s.cfg.Desk.Do(&hold.Join{Resume: resume, Join: &pb.Join{
		Worker: t.number, Rank: h.Rank, Incarnation: uint64(h.Incarnation), WorldSize: h.WorldSize,
		Pid: h.PID, Generation: h.Generation, Resume: resumeWords[h.ResumeFrom], MadeAt: h.MadeNS,
	}})
	if a.Invalid == "" {
		return nil
	}
	s.mu.Lock()
	delete(s.trainers, t.number)
	s.mu.Unlock()
	close(t.left)
	if s.stepFiles.unknow(t.number); before != 0 {
		s.stepFiles.know(h.Incarnation, before)
	}
	return invalid("resume: "+a.Invalid, "")
}

// greet answers HELLO when the master has taken the trainer in.
func (t *trainer) greet(ctx context.Context) {
	wait := time.NewTimer(joinWait)
	defer wait.Stop()
	var j hold.Joined
	select {
	case j = <-t.joined:
	case <-ctx.Done():
		return
	case <-wait.C:
		why := t.srv.cfg.Desk.Lost()
		if why == "" {
			why = "the master has not answered"
		}
		t.giveUp(&frame.Error{Code: frame.CodeUnavailable, Message: fmt.Sprintf("agent %s waited %v for its master: %s", t.srv.cfg.Agent, joinWait, why), Hint: "start the master, or point the agent to it with --master"})
		return
	}
	switch {
	case j.Superseded:
		t.giveUp(refused(j.Reason, "if a launcher started the newer process, nothing is wrong; otherwise start this one again: it is then the newest"))
		return
	case j.Refused:
		t.giveUp(refused(j.Reason, ""))
		return
	case t.hello.Job != "" && t.hello.Job != j.Job:
		t.giveUp(&frame.Error{Code: frame.CodeJob, Message: fmt.Sprintf("this agent serves job %q, not %q", j.Job, t.hello.Job), Hint: "set HEADRACE_AGENT to the socket of the right agent, or HEADRACE_JOB to its job"})
		return
	}
	resumed := make([]frame.Resumed, 0, len(j.Resumed))
	for _, r := range j.Resumed {
		resumed = append(resumed, frame.Resumed{Stream: r.Stream, Refused: r.Refused, Reason: r.Reason})
	}
	t.out.send(frame.TypeWelcome, 0, frame.Welcome{
		Protocol: frame.Protocol, Version: t.srv.cfg.Version, Job: j.Job, Model: j.Model, Generation: j.Generation, Epoch: j.Epoch,
		LastStep: j.LastStep, TTLMillis: j.TTLMillis, Agent: t.srv.cfg.Agent, PendingAgain: j.PendingAgain, Again: againOf(j.Again), Resumed: resumed,
		ResumeFrom: resumeWord(j.Resume), StepRuns: true, StepFiles: t.srv.stepFiles.path(j.Model), Replicas: t.srv.cfg.Peers.Copies(), Peers: t.srv.cfg.Peers != nil,
	})
}

// giveUp sends the reason and closes the connection once it is written.
func (t *trainer) giveUp(e *frame.Error) {
	t.out.send(frame.TypeError, 0, e)
	_ = t.conn.CloseRead()
}

// controlBytes of a control connection are read at once.
const controlBytes = 16 << 10

// listen handles messages until the connection ends. bye reports that the trainer said
// BYE.
func (t *trainer) listen(ctx context.Context, c *net.UnixConn) (bye bool, err error) {
	var buf []byte
	in := bufio.NewReaderSize(&rest{UnixConn: c, left: -1}, controlBytes) // STEPs come in bursts
	for {
		h, payload, err := frame.ReadControl(in, &buf)
		if err != nil {
			if errors.Is(err, frame.ErrProtocol) {
				t.out.send(frame.TypeError, 0, wireError(err))
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return false, err
		}
		if h.Type == frame.TypeBye {
			return true, nil
		}
		if err := t.handle(ctx, h, payload); err != nil {
			t.out.send(frame.TypeError, h.Stream, wireError(err))
			if errors.Is(err, frame.ErrProtocol) {
				return false, err
			}
		}
	}
}

func (t *trainer) handle(ctx context.Context, h frame.Header, payload []byte) error {
	switch h.Type {
	case frame.TypePing:
		p, err := frame.Decode[frame.Ping](h.Type, payload)
		if err != nil {
			return err
		}
		if a := t.srv.cfg.Desk.Do(&hold.Ping{Worker: t.number}); !a.Mute {
			ms := (a.Session + time.Millisecond - 1) / time.Millisecond // 0 says that it is over
			t.out.send(frame.TypePong, 0, frame.Pong{T: p.T, SessionMS: int64(ms)})
		}
		return nil
	case frame.TypePong:
		return nil
	case frame.TypeOpen:
		open, err := frame.Decode[frame.Open](h.Type, payload)
		if err != nil {
			return err
		}
		// The catalog asks the master; steps of other streams do not wait for it.
		t.wg.Go(func() {
			if err := t.open(ctx, h.Stream, open); err != nil && ctx.Err() == nil {
				t.out.send(frame.TypeError, h.Stream, wireError(err))
			}
		})
		return nil
	case frame.TypeStep:
		return t.step(h.Stream, payload)
	case frame.TypeCall:
		return t.call(payload)
	case frame.TypeYieldsPaused:
		return t.yieldsPaused(payload)
	case frame.TypeStats:
		v, err := frame.Decode[frame.Stats](h.Type, payload)
		if err == nil {
			t.stats(h.Stream, v)
		}
		return err
	case frame.TypePause:
		v, err := frame.Decode[frame.Pause](h.Type, payload)
		if err == nil {
			t.paused(v.Paused)
		}
		return err
	case frame.TypeClose:
		t.closeStream(h.Stream)
		return nil
	}
	return fmt.Errorf("%w: %s is not for a control connection", frame.ErrProtocol, h.Type)
}

func (t *trainer) step(number uint32, payload []byte) error {
	v, err := frame.Decode[frame.Step](frame.TypeStep, payload)
	if err != nil {
		return err
	}
	st := t.stream(number)
	if st == nil || !st.track {
		return nil // closed before, or read without steps
	}
	if v.Step == nil {
		return invalid("STEP without a step", "say the step of a stream that is tracked")
	}
	ev := &hold.Stepped{Stream: st.id, Step: *v.Step, Batches: v.Batches, Through: v.Through, More: v.More, Run: v.Run}
	if a := t.srv.cfg.Desk.Do(ev); a.Invalid != "" {
		return invalid(a.Invalid, "steps grow, and only delivered batches can be stepped")
	}
	t.alone.steppedTo(st, &v)
	return nil
}

// stats takes the totals of one stream. The worker's totals are the sum over its streams.
func (t *trainer) stats(number uint32, v frame.Stats) {
	st := t.stream(number)
	if st == nil {
		return
	}
	t.mu.Lock()
	t.srv.cfg.Metrics.addTimes(v.WaitSeconds-st.last.WaitSeconds, v.StepSeconds-st.last.StepSeconds)
	t.status.WaitSeconds += v.WaitSeconds - st.last.WaitSeconds
	t.status.StepSeconds += v.StepSeconds - st.last.StepSeconds
	t.status.RowsYielded += v.Rows - min(v.Rows, st.last.Rows)
	st.last = v
	t.mu.Unlock()
	t.tell()
}

func (t *trainer) paused(paused bool) {
	t.mu.Lock()
	t.status.Paused = paused
	t.mu.Unlock()
	t.tell()
}

// tell passes the worker's totals on.
func (t *trainer) tell() {
	t.mu.Lock()
	st := &pb.WorkerStatus{
		Worker: t.number, Paused: t.status.Paused, WaitSeconds: t.status.WaitSeconds, StepSeconds: t.status.StepSeconds,
		RowsYielded: t.status.RowsYielded,
	}
	t.mu.Unlock()
	t.srv.cfg.Desk.Do(&hold.Status{Status: st})
}
