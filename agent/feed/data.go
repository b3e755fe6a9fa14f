package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/frame"
)

// data owns one data connection: it starts the stream's pipeline and takes credits
// and releases until the connection ends.
func (s *Server) data(c *net.UnixConn, cred *unix.Ucred, attach frame.Attach, number uint32) error {
	t := s.byIncarnation(attach.Incarnation)
	if t == nil {
		return s.refuse(c, number, refused("ATTACH before HELLO: no process here has incarnation "+attach.Incarnation.String(), "call headrace.init() in this process"))
	}
	if t.cred.Pid != cred.Pid {
		return s.refuse(c, number, refused(
			fmt.Sprintf("stream %d belongs to process %d, and process %d asks for it: a fork cannot share it", number, t.cred.Pid, cred.Pid),
			"open the stream in the process that trains; with a DataLoader use num_workers=0, the agent prefetches already"))
	}
	st := t.stream(number)
	if st == nil {
		return s.refuse(c, number, refused(fmt.Sprintf("stream %d is not open", number), "OPEN comes first"))
	}
	_ = c.SetReadDeadline(time.Time{})
	// Ask for room for a whole frame. With less, the two processes would switch after
	// every 200 KiB.
	_ = c.SetWriteBuffer(frameBytes)
	if !st.attach(c, attach.Regions) {
		return s.refuse(c, number, refused(fmt.Sprintf("stream %d has a data connection already", number), ""))
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var pipeline sync.WaitGroup
	defer st.detach()
	defer pipeline.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	pipeline.Go(func() {
		defer cancel()
		st.cut(ctx)
	})
	pipeline.Go(func() {
		defer cancel()
		if err := st.send(ctx, c); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.cfg.Logger.Debug("a stream's connection ended", "stream", number, "rank", t.hello.Rank, "error", err)
		}
	})
	err := st.takeCredits(c)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if errors.Is(err, frame.ErrProtocol) {
		t.out.send(frame.TypeError, number, wireError(err))
	}
	return err
}

func (s *Server) byIncarnation(i frame.Incarnation) *trainer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *trainer
	for _, t := range s.trainers {
		if t.hello.Incarnation == i && (newest == nil || t.number > newest.number) {
			newest = t
		}
	}
	return newest
}

func (st *stream) takeCredits(c net.Conn) error {
	var buf []byte
	var uses []frame.Use
	for {
		h, payload, err := frame.ReadControl(c, &buf)
		if err != nil {
			return err
		}
		switch {
		case h.Type == frame.TypeCredit:
			if again := st.credited(h.Number); again && !st.track {
				st.t.srv.cfg.Desk.Do(&hold.Consumed{Stream: st.id, Batches: h.Number})
			}
		case h.Type == frame.TypeReady && st.rounds != nil:
			if a := st.arrived(h.Number); a.Invalid != "" {
				return fmt.Errorf("%w: READY: %s", frame.ErrProtocol, a.Invalid)
			}
		case st.regions != nil && (h.Type == frame.TypeRelease || h.Type == frame.TypeForget):
			if uses, err = frame.Uses(h.Type, payload, uses); err == nil {
				err = st.regions.released(uses, h.Type == frame.TypeForget)
			}
			if err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: %s on a data connection", frame.ErrProtocol, h.Type)
		}
	}
}
