package testbroker

import (
	"context"
	"fmt"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
)

func TestOnlyAnErrorBeforeAnythingWasWrittenIsTriedAgain(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("kafka.(*Client).Produce: %w", err) }
	for err, nothing := range map[error]bool{
		wrap(produce.NewError(protocol.NewErrNoTopic("events"))):        true,
		wrap(produce.NewError(protocol.NewErrNoPartition("events", 3))): true,
		wrap(produce.NewError(protocol.NewErrNoLeader("events", 3))):    true,
		wrap(kafkago.UnknownTopicOrPartition):                           true,
		wrap(protocol.ErrNoTopic):                                       false, // the answer lacks the topic
		wrap(kafkago.RequestTimedOut):                                   false,
		wrap(context.DeadlineExceeded):                                  false,
	} {
		if NothingWritten(err) != nothing {
			t.Errorf("%v: nothing was written is %v, want %v", err, !nothing, nothing)
		}
	}
}

// A broker was killed while it wrote a batch of 128 messages. 79 of them were in its log.
func TestTheRestOfAHalfWrittenBatchIsWritten(t *testing.T) {
	values := make([][]byte, 128)
	for _, c := range []struct {
		at   int64
		left int
		ok   bool
	}{{47487, 0, false}, {47488, 128, true}, {47567, 49, true}, {47616, 0, true}, {47617, 0, false}} {
		left, ok := notWritten(values, 47488, c.at)
		if len(left) != c.left || ok != c.ok {
			t.Errorf("the queue ends at %d: %d values are still to be written, %v; want %d, %v", c.at, len(left), ok, c.left, c.ok)
		}
	}
}
