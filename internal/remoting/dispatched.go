package remoting

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// A broker answers a sender when a message is in its commit log. Another of its threads
// enters the message into its queue later: some milliseconds on a quiet machine, longer
// on a busy one. Until then the queue's maximum, a search by time and a pull know
// nothing of it.

const (
	lookAgainAfter = 2 * time.Millisecond // doubled each time
	lookAgainMost  = 20 * time.Millisecond
	looksAtFirst   = 5 // after so many the configuration is asked for
)

// ErrNotTold: a broker does not say how far its queues are behind its commit log.
var ErrNotTold = errors.New("the broker does not say how far its queues are behind its commit log")

// Dispatched returns when the queues of a broker show every message whose sender had
// its answer before the call.
//
// It is exact for 5.3.3 with its usual settings. It is not exact if
// enableBuildConsumeQueueConcurrently or transientStorePoolEnable is set, because then the
// broker's figures leave out messages on the way between its threads.
func (c *Client) Dispatched(ctx context.Context, addr string) error {
	var stored int64    // the commit log reached this far at the first look
	var comparable bool // both figures speak of the same end of the commit log
	for n := 0; ; n++ {
		info, err := c.Runtime(ctx, addr)
		if code := CodeOf(err); code == NoPermission || code == unsupported {
			return fmt.Errorf("%w: %w", ErrNotTold, err)
		}
		if err != nil {
			return err
		}
		// The broker takes the first figure before the second one.
		reached, err := strconv.ParseInt(info["commitLogMaxOffset"], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %s says that commitLogMaxOffset is %q", ErrNotTold, addr, info["commitLogMaxOffset"])
		}
		behind, err := strconv.ParseInt(info["dispatchBehindBytes"], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %s says that dispatchBehindBytes is %q", ErrNotTold, addr, info["dispatchBehindBytes"])
		}
		switch {
		case behind <= 0:
			return nil
		case n == 0:
			stored = reached
		case comparable && reached-behind >= stored: // it is never 0 for long where many messages come
			return nil
		case n == looksAtFirst:
			conf, err := c.Config(ctx, addr)
			if code := CodeOf(err); err != nil && code != NoPermission {
				return err
			}
			// With other settings a broker dispatches less than its commit log holds: only what
			// is flushed, or what replicas have.
			comparable = conf["flushDiskType"] == "ASYNC_FLUSH" && conf["enableControllerMode"] != "true" && conf["duplicationEnable"] != "true"
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("broker %s is %d bytes behind with entering messages into its queues: %w", addr, behind, ctx.Err())
		case <-time.After(min(lookAgainAfter<<min(n, looksAtFirst), lookAgainMost)):
		}
	}
}
