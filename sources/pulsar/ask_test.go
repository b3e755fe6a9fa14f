//go:build pulsar

package pulsar

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// If nothing comes, a cursor asks the admin API why. With hundreds of partitions, a broker may need seconds
// to answer. Messages that come meanwhile must not wait for that.
func TestAMessageDoesNotWaitForAnAnswerOfTheAdminAPI(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	to, err := url.Parse(b.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	var hold atomic.Bool
	held, release := make(chan struct{}, 1), make(chan struct{})
	forward := httputil.NewSingleHostReverseProxy(to)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hold.Load() {
			select {
			case held <- struct{}{}:
			default:
			}
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	topic := newTopic(t, b, 0)
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Never)
	o.Admin = proxy.URL
	s := mustOpen(t, o)
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.Start + 1<<40}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.(sources.Tailing).OnHead(func(int64) { hold.Store(true) }) // the cursor waits from now on
	batch, ended := &sources.Batch{}, make(chan error, 1)
	go func() { ended <- c.Next(ctx, batch) }()
	select {
	case <-held:
	case err := <-ended:
		t.Fatalf("it ends with %v", err)
	}
	send(t, p, &client.ProducerMessage{Payload: []byte("one")})
	if err := <-ended; err != nil || len(batch.Recs) != 1 {
		t.Errorf("%d messages and the error %v; want the one that was sent while the admin API did not answer", len(batch.Recs), err)
	}
	close(release)
	cancel()
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
