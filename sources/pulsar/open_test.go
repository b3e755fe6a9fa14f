//go:build pulsar

package pulsar

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// javaHolds sends a plain message, two messages of a transaction that stays open, and another plain one. It
// returns a function that commits or aborts the transaction.
func javaHolds(t *testing.T, b *testbroker.Pulsar, topic string) (end func(how string)) {
	t.Helper()
	cmd := javaSend(t, b, "open", topic, 2)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = in.Close()
			_ = cmd.Wait()
		}
	})
	said := bufio.NewScanner(out)
	for said.Text() != "open" {
		if !said.Scan() {
			t.Fatalf("the Java program has ended: %v", cmd.Wait())
		}
	}
	return func(how string) {
		t.Helper()
		ended = true
		_, _ = io.WriteString(in, how+"\n")
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// While a transaction is open, a dataset with end: latest ends before it. A live dataset waits there, and goes
// on when the transaction ends, with its messages if it was committed.
func TestMessagesOfAnOpenTransactionAreWaitedFor(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	for how, want := range map[string][]string{
		"commit": {"|before", "|held 0", "|held 1", "|after"},
		"abort":  {"|before", "|after"},
	} {
		topic := newTopic(t, b, 0)
		end := javaHolds(t, b, topic)

		bounded := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
		if got := readAll(t, bounded); !slices.Equal(got, want[:1]) {
			t.Errorf("with end: latest %q are read", got)
		}
		bounded.Close()

		to, err := url.Parse(b.AdminURL())
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{}, 1000)
		forward := httputil.NewSingleHostReverseProxy(to)
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			forward.ServeHTTP(w, r)
			if strings.HasSuffix(r.URL.Path, "/entry/1") && w.Header().Get("X-Pulsar-txn-uncommitted") == "true" {
				asked <- struct{}{}
			}
		}))
		o := (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Never)
		o.Admin = proxy.URL
		s := mustOpen(t, o)
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g := sourcetestSegments(t, s, ids[0])[0]
		r := sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.Start + 1<<40}
		c, err := s.Open(t.Context(), r, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		values, ended := make(chan string, 10), make(chan error, 1)
		go func() { // ends when all messages have come
			var batch sources.Batch
			for n := 0; n < len(want); {
				if err := c.Next(t.Context(), &batch); err != nil {
					ended <- err
					return
				}
				for _, rec := range batch.Recs {
					values <- "|" + string(batch.Arena[rec.Value[0]:rec.Value[1]])
					n++
				}
			}
			ended <- nil
		}()
		for range 2 * realTries { // looking so often at an open transaction must not count as an error
			select {
			case <-asked:
			case err := <-ended:
				t.Fatalf("%s: it ends with %v", how, err)
			}
		}
		if len(values) != 1 {
			t.Errorf("%s: %d messages came while the transaction was open", how, len(values))
		}
		end(how)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", how, err)
		}
		var got []string
		for range len(values) {
			got = append(got, <-values)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", how, got, want)
		}
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		proxy.Close()
		again := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
		if got := readAll(t, again); !slices.Equal(got, want) {
			t.Errorf("%s, with end: latest afterwards: %q", how, fmt.Sprint(got))
		}
		again.Close()
	}
}
