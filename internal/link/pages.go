package link

import (
	"context"
	"net"
	"sync"

	"github.com/headrace/headrace/internal/access"
)

// callsBegin is how HTTP/2 begins, and with it gRPC. A caller that begins in any other way
// speaks HTTP/1.1: clients without gRPC push records in that way (docs/LANDING.md).
const callsBegin = "PRI "

// Pages returns a listener of the callers that speak HTTP/1.1. Before Pages is called, and after
// its listener is closed, these callers are refused. Callers that speak gRPC still come in.
func (d *Door) Pages() net.Listener {
	p := &doorPages{d: d, in: make(chan *Guest), done: make(chan struct{})}
	d.pages.Store(p)
	return p
}

type doorPages struct {
	d    *Door
	in   chan *Guest
	done chan struct{}
	end  sync.Once
}

func (p *doorPages) Accept() (net.Conn, error) {
	select {
	case g := <-p.in:
		return g, nil
	case <-p.done:
	case <-p.d.done:
	}
	return nil, net.ErrClosed
}

func (p *doorPages) Addr() net.Addr { return p.d.Addr() }

func (p *doorPages) Close() error {
	p.end.Do(func() {
		p.d.pages.CompareAndSwap(p, nil)
		close(p.done)
	})
	return nil
}

// WithCaller is the ConnContext of an http.Server that serves Pages: access.Book.Pages
// finds there what the door has found out.
func WithCaller(ctx context.Context, c net.Conn) context.Context {
	if g, ok := c.(*Guest); ok {
		return access.WithCaller(ctx, g.Caller)
	}
	return ctx
}
