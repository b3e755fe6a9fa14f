//go:build pulsar

package pulsar

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

// A message of 100 MB is sent in chunks, because Pulsar takes at most 5 MiB at once. It is read whole, or named
// in an error if the dataset's limit is smaller.
func TestAMessageOfAHundredMegabytesIsReadOrNamed(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	small := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	chunked := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 4 << 20})
	large := make([]byte, 100_000_000)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(large) // random, so that no codec shrinks it and any mixed-up part shows
	want := [][]byte{[]byte("before"), large, []byte("after")}
	for _, v := range want {
		p := small
		if len(v) == len(large) {
			p = chunked
		}
		send(t, p, &client.ProducerMessage{Payload: v})
	}
	for _, most := range []int64{int64(len(large)), int64(len(large)) - 1} {
		s := mustOpen(t, (&place{b: b, topic: topic, max: most}).options(brokers.Latest))
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g := sourcetestSegments(t, s, ids[0])[0]
		got, err := sourcetest.Read(t.Context(), s, sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.End},
			sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if most < int64(len(large)) {
			tooLarge, ok := errors.AsType[*sources.TooLarge](err)
			if !ok || tooLarge.Size != int64(len(large)) || entryOf(tooLarge.Position.Offset) == 0 || len(got) != 1 {
				t.Errorf("with a smaller limit: %d records and %v", len(got), err)
			}
		} else if err != nil || len(got) != len(want) {
			t.Errorf("%d records (%v), want %d", len(got), err, len(want))
		} else {
			for i := range want {
				if !bytes.Equal(got[i].Value, want[i]) {
					t.Errorf("record %d has %d bytes and is not what was sent, %d bytes", i, len(got[i].Value), len(want[i]))
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// While a reader pauses, its topic is unloaded: ledgers are closed, and the connection's Readers end. When
// the reader goes on, it gets every record once.
func TestASlowReaderReadsOnWhenItsTopicWasUnloadedMeanwhile(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	const n = 3000
	p := producer(t, client.ProducerOptions{Topic: topic, BatchingMaxMessages: 10})
	var want []string
	for i := range n {
		v := fmt.Sprintf("%d %s", i, bytes.Repeat([]byte("x"), 1000))
		want = append(want, v)
		p.SendAsync(t.Context(), &client.ProducerMessage{Payload: []byte(v)}, func(client.MessageID, *client.ProducerMessage, error) {})
	}
	if err := p.FlushWithCtx(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range sourcetestSegments(t, s, ids[0]) {
		c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		for rest, round := true, 0; rest; round++ {
			var batch sources.Batch
			err := c.Next(t.Context(), &batch)
			if isTemporary(err) {
				continue // as an agent does
			}
			if rest = err == nil; rest {
				for _, r := range batch.Recs {
					got = append(got, string(batch.Arena[r.Value[0]:r.Value[1]]))
				}
				if round == 0 {
					admincall(t, b, http.MethodPut, "persistent/public/default/"+topic+"/unload", nil)
				}
			} else if err.Error() != "EOF" {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("record %d is %.20q", i, got[i])
		}
	}
}

// Pulsar checks a TTL once a minute here, and a quota once a second. Both delete ledgers that the retaining
// subscription still needs, and reading them names the exact range.
func TestWhatPulsarsTimersDeleteIsNamed(t *testing.T) {
	b := ownBroker(t, testbroker.PulsarOptions{EntriesPerLedger: 5, Config: map[string]string{
		"messageExpiryCheckIntervalInMinutes": "1", "backlogQuotaCheckIntervalInSeconds": "1"}})
	c, err := newClient(&Options{Service: b.URL(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, one := range []struct {
		name, path string
		body       any
	}{
		{"a TTL", "messageTTL?messageTTL=5", nil},
		{"a backlog quota", "backlogQuota?backlogQuotaType=destination_storage",
			map[string]any{"limitSize": 3000, "limitTime": -1, "policy": "consumer_backlog_eviction"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			topic := newTopic(t, b, 0)
			path := "persistent/public/default/" + topic
			admincall(t, b, http.MethodPost, path+"/retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
			o := (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest)
			o.Retain, o.Progress = "timers-retain", "timers"
			s := mustOpen(t, o)
			defer s.Close()
			ids, err := s.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Begin(t.Context(), ids); err != nil {
				t.Fatal(err)
			}
			p := producerOf(t, c, client.ProducerOptions{Topic: topic, SendTimeout: -1, DisableBatching: true})
			for range 23 { // four ledgers and a half, of 5 KB each
				send(t, p, &client.ProducerMessage{Payload: make([]byte, 1000)})
			}
			p.Close()
			segs := sourcetestSegments(t, s, ids[0])
			if len(segs) < 4 {
				t.Fatalf("%d segments: %+v", len(segs), segs)
			}
			admincall(t, b, http.MethodPost, path+"/"+one.path, one.body)
			mark := []sources.Mark{{Partition: ids[0], Position: sources.Position{Segment: segs[0].ID, Offset: segs[0].Start}}}
			for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
				all, err := s.Keeps(t.Context(), mark, -1)
				if err != nil {
					t.Fatal(err)
				}
				if all[0].Err == nil && all[0].Low.Segment > segs[1].ID {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("nothing was deleted: %+v", all)
				}
			}
			for _, g := range segs[:2] {
				_, err = readTexts(t.Context(), s, ids[0], g)
				lost, ok := errors.AsType[*sources.Truncated](err)
				if !ok || lost.Lost.Segment != g.ID || lost.Lost.Start != g.Start || lost.Lost.End != g.End {
					t.Errorf("reading what was deleted: %v; want [%d, %d) of segment %d", err, g.Start, g.End, g.ID)
				}
			}
		})
	}
}

// A topic is deleted by force while one reader has more to read, or waits at the head of a live topic. The
// error names the rest of the range, and reading does not create the topic again.
func TestATopicThatIsDeletedUnderAReaderIsTold(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	for name, end := range map[string]brokers.At{"with more to read": brokers.Latest, "at the head": brokers.Never} {
		t.Run(name, func(t *testing.T) {
			topic := newTopic(t, b, 0)
			const n = 350 // so many that the last ledger has 12 MB, more than a reader gets ahead
			p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
			for range n {
				p.SendAsync(t.Context(), &client.ProducerMessage{Payload: make([]byte, 80_000)}, func(_ client.MessageID, _ *client.ProducerMessage, err error) {
					if err != nil {
						t.Errorf("sending: %v", err)
					}
				})
			}
			if err := p.FlushWithCtx(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.Close()
			s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(end))
			defer s.Close()
			ids, err := s.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all := sourcetestSegments(t, s, ids[0])
			g := all[len(all)-1]
			to := g.End
			if end == brokers.Never {
				to = g.End + 1<<40
			}
			rng, next, deleted := sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: to}, g.Start, false
			for tries := 0; ; tries++ { // as an agent does
				c, err := s.Open(t.Context(), rng, sources.Position{Segment: g.ID, Offset: next}, g.Locator)
				var batch sources.Batch
				for err == nil {
					if err = c.Next(t.Context(), &batch); err == nil {
						next = batch.End
					}
					if err == nil && !deleted && (end == brokers.Latest || next == g.End) {
						deleted = true
						deleteTopic(t, b, topic, 0)
					}
				}
				if c != nil {
					_ = c.Close()
				}
				if isTemporary(err) && tries < 1000 {
					continue
				}
				changed, is := errors.AsType[*sources.Changed](err)
				if !is || !deleted || changed.Range.Start != next || !strings.Contains(err.Error(), topic) {
					t.Errorf("at %d of %d: %v", next, g.End, err)
				}
				break
			}
			if end == brokers.Latest && next >= g.End {
				t.Error("everything was read before the topic was deleted, so this test has tested nothing")
			}
			if text, err := b.Admin(t.Context(), http.MethodGet, "persistent/public/default/"+topic+"/internalStats", nil); err == nil {
				t.Errorf("reading has created the topic again: %s", text)
			}
		})
	}
}
