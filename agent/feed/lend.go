package feed

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/frame"
)

// write sends a finished frame. If it lies in shared memory, only its place is sent;
// otherwise all of its bytes are.
func (s *sender) write(w *work, payload []byte, batches uint32) error {
	st := s.st
	m := st.t.srv.cfg.Metrics
	m.Delivered.Add(float64(len(payload)))
	m.Frames.Inc()
	if w.region != nil && w.b.Placed() {
		m.Lent.Inc()
		return s.lend(w, len(payload), batches)
	}
	frame.Header{Length: uint32(len(payload)), Type: frame.TypeFrame, Stream: st.id.Number, Number: batches}.Put(&s.head)
	buffers := net.Buffers{s.head[:], payload}
	if _, err := buffers.WriteTo(s.conn); err != nil || st.regions == nil || len(payload) < st.t.srv.cfg.ShareFrom {
		return err
	}
	return s.offer(len(payload))
}

// lend gives the frame's region to the trainer.
func (s *sender) lend(w *work, length int, batches uint32) error {
	r := w.region
	w.region = nil
	at := frame.FrameAt{Use: s.st.regions.lend(r), Length: uint64(length)}
	frame.Header{Length: frame.FrameAtSize, Type: frame.TypeFrameAt, Stream: s.st.id.Number, Number: batches}.Put((*[frame.HeaderSize]byte)(s.place[:]))
	at.Put(s.place[frame.HeaderSize:])
	_, err := s.conn.Write(s.place[:])
	return err
}

// offer is called after a frame of size bytes found no region. It offers the trainer one
// more region, and names the regions that are gone.
func (s *sender) offer(size int) error {
	s.gone = s.st.regions.news(s.gone)
	for _, number := range s.gone {
		frame.Header{Type: frame.TypeForget, Stream: s.st.id.Number, Number: number}.Put(&s.head)
		if _, err := s.conn.Write(s.head[:]); err != nil {
			return err
		}
	}
	r, fd, err := s.st.regions.offer(size, s.st.pool.ArenaSize())
	if err != nil {
		s.st.t.srv.cfg.Logger.Info("frames go over the socket", "stream", s.st.id.Number, "rank", s.st.t.hello.Rank, "reason", err)
		return nil
	}
	if r == nil {
		return nil
	}
	defer unix.Close(fd)
	frame.Header{Length: frame.RegionSize, Type: frame.TypeRegion, Stream: s.st.id.Number, Number: r.use.Region}.Put(&s.head)
	if _, err := s.conn.Write(s.head[:]); err != nil {
		return err
	}
	// In a message of its own: a reader takes the descriptor with the first of its bytes.
	var payload [frame.RegionSize]byte
	frame.PutRegion(&payload, len(r.memory))
	n, oobn, err := s.conn.WriteMsgUnix(payload[:], unix.UnixRights(fd), nil)
	if err == nil && (n != len(payload) || oobn == 0) {
		err = fmt.Errorf("a region's descriptor was sent in part")
	}
	return err
}
