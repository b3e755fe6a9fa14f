package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
)

// Answers with a code that Kafka's own client retries (RetriableException) are asked again.
func TestAnswersThatPassAreAskedAgain(t *testing.T) {
	c := &client{addr: kafkago.TCP("127.0.0.1:9092")}
	for code, again := range map[kafkago.Error]bool{
		kafkago.UnknownTopicOrPartition: true, kafkago.LeaderNotAvailable: true, kafkago.NotLeaderForPartition: true,
		kafkago.BrokerNotAvailable: true, kafkago.ReplicaNotAvailable: true, kafkago.KafkaStorageError: true,
		kafkago.FencedLeaderEpoch: true, kafkago.UnknownLeaderEpoch: true, kafkago.OffsetNotAvailable: true, kafkago.UnknownTopicID: true,
		kafkago.OffsetOutOfRange: false, kafkago.TopicAuthorizationFailed: false, kafkago.UnsupportedVersion: false,
	} {
		for what, err := range map[string]error{"an answer": answered(int16(code), "t/0"), "a request": c.explain(t.Context(), code)} {
			var temporary *sources.Temporary
			if errors.As(err, &temporary) != again || !errors.Is(err, code) {
				t.Errorf("%s with code %d is %v", what, code, err)
			}
		}
	}
}

// A broker that is away says nothing about a range, so reading waits for it, however long it takes. An
// error code about the range, or a leader that has moved, is tried three times.
func TestABrokerThatIsAwayIsSaidToBe(t *testing.T) {
	c := &client{transport: &kafkago.Transport{}}
	for err, want := range map[error]bool{
		error(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}): true,
		context.DeadlineExceeded:                                   true,
		io.ErrUnexpectedEOF:                                        true,
		kafkago.LeaderNotAvailable:                                 true,
		kafkago.BrokerNotAvailable:                                 true,
		kafkago.NotLeaderForPartition:                              false,
		kafkago.KafkaStorageError:                                  false,
	} {
		got, ok := errors.AsType[*sources.Temporary](c.explain(t.Context(), err))
		if !ok || got.Away != want {
			t.Errorf("%v: %+v, away %v wanted", err, got, want)
		}
	}
}
