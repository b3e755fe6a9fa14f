package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Waits between attempts to reach the master. They are short, because a session lives
// for seconds only and a master that is started again is soon back.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// errTurnedAway means that the master refuses this agent for good.
var errTurnedAway = errors.New("the master has turned this agent away")

// keepSession keeps a session with the master: when a stream ends, it opens the next.
// Errors: errTurnedAway.
func (a *Agent) keepSession(ctx context.Context) error {
	retry, told := firstRetry, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := a.session(ctx)
		if ctx.Err() != nil {
			break
		}
		// An absent master refuses many times a second: log only what is new.
		level := slog.LevelDebug
		if why := status.Convert(err).Message(); a.met || why != told {
			level, told = slog.LevelWarn, why
		}
		a.cfg.Logger.Log(ctx, level, "no session with the master; trying again", "master", a.cfg.Master, "error", err)
		a.desk.disconnect(fmt.Sprintf("master %s: %v", a.cfg.Master, status.Convert(err).Message()))
		if turned := a.turnedAway(err); turned != nil {
			return turned
		}
		if errors.Is(err, errAgain) || time.Since(began) > time.Second {
			retry = firstRetry
		}
		wait := time.NewTimer(retry/2 + rand.N(retry/2))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		retry = min(2*retry, lastRetry)
	}
	return nil
}

// turnedAway returns errTurnedAway if another attempt cannot help. Only a refused Hello
// is final; a session that has begun may end as any stream does.
func (a *Agent) turnedAway(err error) error {
	if a.met {
		return nil
	}
	switch status.Code(err) {
	case codes.FailedPrecondition, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return fmt.Errorf("%w: %s", errTurnedAway, status.Convert(err).Message())
	case codes.AlreadyExists:
		return fmt.Errorf("%w: %s; give each agent of a job a name of its own", errTurnedAway, status.Convert(err).Message())
	}
	return nil
}

// errAgain means that the agent itself broke the stream to say Hello again.
var errAgain = errors.New("saying hello again")

// session is one stream to the master, from Hello to its end.
func (a *Agent) session(ctx context.Context) error {
	a.met = false
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewShardsClient(a.cfg.Conn).Session(ctx)
	if err != nil {
		return err
	}
	out := newOutgoing()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer cancel()
		var batch []*pb.AgentMessage
		for {
			select {
			case <-out.signal:
			case <-out.closed:
				return
			case <-ctx.Done():
				return
			}
			batch = out.take(batch)
			for i, m := range batch {
				batch[i] = nil
				if stream.Send(m) != nil {
					return // Recv has the reason
				}
			}
		}
	})
	a.desk.connect(out)
	for {
		m, err := stream.Recv()
		if err != nil {
			select {
			case <-out.closed:
				return fmt.Errorf("%w: %s", errAgain, out.why)
			default:
				return err
			}
		}
		a.met = a.met || m.Hello != nil
		a.desk.Do(&hold.Received{Message: m})
	}
}
