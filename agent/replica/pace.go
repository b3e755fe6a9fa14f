package replica

import (
	"context"
	"time"
)

// pace spreads bytes over time.
type pace struct {
	perSecond int64
	next      time.Time // when the next bytes may leave
}

// lag is how far behind its pace a copy may fall and still make up for it.
const lag = 50 * time.Millisecond

// take waits until n more bytes may leave. false: ctx has ended.
func (p *pace) take(ctx context.Context, n int) bool {
	now := time.Now()
	if p.next.Before(now.Add(-lag)) {
		p.next = now.Add(-lag)
	}
	if d := p.next.Sub(now); d > 0 && !wait(ctx, d) {
		return false
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	return ctx.Err() == nil
}
