package access

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Limits of the connections to a port of pages whose callers have shown nothing, as a door has them
// for gRPC. Each gets one answer. A new one takes the place of the oldest.
const (
	mostStrangers  = 128
	strangerWithin = 5 * time.Second // for the rest of a request, after its header
)

// Guard has s serve h by the table (Pages), and bounds what callers cost that have shown nothing.
func (b *Book) Guard(s *http.Server, h http.Handler) { b.guard(s, h, mostStrangers, strangerWithin) }

func (b *Book) guard(s *http.Server, h http.Handler, most int, within time.Duration) {
	all := &strangers{most: most, within: within}
	s.Handler = b.Pages(h)
	s.ConnState = all.state
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, strangerKey{}, &stranger{all, c})
	}
}

type strangerKey struct{}

// stranger is a connection whose caller has shown nothing yet.
type stranger struct {
	all  *strangers
	conn net.Conn
}

// strangerOf returns the connection of a request; nil: nobody counts it.
func strangerOf(r *http.Request) *stranger {
	s, _ := r.Context().Value(strangerKey{}).(*stranger)
	return s
}

// known says that the caller has a role.
func (s *stranger) known() {
	if s != nil {
		s.all.forget(s.conn)
	}
}

// once lets the connection end with this answer. net/http reads the rest of a request before that,
// which may never come.
func (s *stranger) once(w http.ResponseWriter) {
	if s != nil {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.all.within))
	}
}

type strangers struct {
	most   int
	within time.Duration

	mu      sync.Mutex
	waiting []net.Conn // the oldest first
}

func (s *strangers) state(c net.Conn, now http.ConnState) {
	switch now {
	case http.StateNew:
		s.come(c)
	case http.StateClosed, http.StateHijacked:
		s.forget(c)
	}
}

func (s *strangers) come(c net.Conn) {
	s.mu.Lock()
	var oldest net.Conn
	if len(s.waiting) >= s.most {
		oldest, s.waiting = s.waiting[0], s.waiting[1:]
	}
	s.waiting = append(s.waiting, c)
	s.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
}

func (s *strangers) forget(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(o net.Conn) bool { return o == c })
}
