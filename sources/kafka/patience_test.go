package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// A large answer over a slow link takes minutes. As long as its bytes come, it is waited for. If nothing more comes,
// the request ends after answerWithin.
func TestALargeAnswerMayTakeLongAsLongAsItsBytesCome(t *testing.T) {
	const size = 10 * readPiece
	for name, comes := range map[string]int{"all of it": size + 4, "a part of it": size / 2, "nothing": 0} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				defer far.Close()
				_, _ = io.ReadFull(far, make([]byte, 3))
				for b := answerBytes(size)[:comes]; len(b) > 0; {
					n, err := far.Write(b[:min(len(b), readPiece)])
					if err != nil {
						return
					}
					b = b[n:]
					time.Sleep(answerWithin * 2 / 3)
				}
				_, _ = io.Copy(io.Discard, far) // until the other end is closed
			}()
			x := &exchange{key: protocol.Fetch, request: []byte("ask"), limit: size}
			ctx, cancel := x.patient(t.Context())
			defer cancel()
			began := time.Now()
			err := x.over(near)
			took := time.Since(began)
			if comes > size {
				if err != nil || ctx.Err() != nil || took < 2*answerWithin {
					t.Errorf("%s: %v after %v, and its context ended with %v", name, err, took, ctx.Err())
				}
				time.Sleep(time.Hour)
				if _, err := near.Write([]byte("ask")); err != nil {
					t.Errorf("%s: a later request on the connection fails: %v", name, err)
				}
				return
			}
			<-ctx.Done()
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("%s: %v, and its context ended with %v", name, err, context.Cause(ctx))
			}
			if silent := time.Duration(comes/readPiece) * answerWithin * 2 / 3; took > silent+answerWithin {
				t.Errorf("%s: it ends only after %v", name, took)
			}
		})
	}
}
