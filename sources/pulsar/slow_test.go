package pulsar

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources/brokers"
)

// slowClient is the official client while its broker does not answer.
type slowClient struct {
	client.Client
	release chan struct{}
}

func (c *slowClient) Subscribe(client.ConsumerOptions) (client.Consumer, error) {
	<-c.release
	return nil, errors.New("released by the test")
}
func (c *slowClient) Close() {}

// If a subscription is not made within its time, the broker is slow, and the master tries again. A caller that has
// gone is no fault of the broker.
func TestASubscriptionThatIsNotMadeInTimeIsTriedAgain(t *testing.T) {
	a := newFakeAdmin(t)
	a.topic("t", "", [2]int64{5, 10})
	s := a.open(t, brokers.Never, "t")
	slow := &slowClient{release: make(chan struct{})}
	defer close(slow.release)
	s.client = slow
	p := partition{"public/default/t", 1769731200001}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := s.subscribe(ctx, p, "x-retain", messageAt{Ledger: 5}); !isTemporary(err) || !strings.Contains(err.Error(), "x-retain") {
		t.Errorf("after its time: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := s.subscribe(ctx, p, "x-retain", messageAt{Ledger: 5}); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller that has gone: %v", err)
	}
}
