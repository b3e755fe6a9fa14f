//go:build rocketmq

package rocketmq

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// established counts connections to a port of 127.0.0.1, as the kernel lists them.
func established(t *testing.T, port string) (n int) {
	t.Helper()
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[2] == fmt.Sprintf("0100007F:%04X", number) && f[3] == "01" {
			n++
		}
	}
	return n
}

// A message of the largest size that a broker takes by default (frames of 16 MiB) is read, or named in an
// error if the dataset's limit is smaller. A reader goes on even if it was so slow that its broker has
// closed the connection.
func TestLargeMessagesAndSlowReadersLoseNothing(t *testing.T) {
	b, err := testbroker.StartRocketMQ(t.Context(), testbroker.RocketMQOptions{HeapMiB: 512,
		Set: map[string]string{"maxMessageSize": "16000000", "serverChannelMaxIdleTimeSeconds": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	topic := newTopic(t, b, 1)
	to := b.NewAppender(topic)
	defer to.Close()
	large := make([]byte, 15_000_000)
	var seed [32]byte
	_, _ = rand.NewChaCha8(seed).Read(large)
	var want [][]byte
	put := func(values ...[]byte) {
		if err := to.Append(t.Context(), 0, int64(len(want)), values, func() {}); err != nil {
			t.Fatal(err)
		}
		want = append(want, values...)
	}
	put([]byte("before"))
	put(large)
	put([]byte("after"))
	for range 50 {
		var some [][]byte
		for range 100 {
			some = append(some, fmt.Appendf(nil, "%d %s", len(want)+len(some), bytes.Repeat([]byte("x"), 1000)))
		}
		put(some...)
	}

	o := options(b, topic)
	o.MaxRecord = int64(len(large))
	s := openFor(t, o)
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetest.Segments(t, s, ids[0], 10)[0]
	rng := sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.End}
	got, err := sourcetest.Read(t.Context(), s, rng, sources.Position{}, g.Locator)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d records (%v), want %d", len(got), err, len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i].Value, want[i]) {
			t.Fatalf("record %d has %d bytes and is not what was sent, %d bytes", i, len(got[i].Value), len(want[i]))
		}
	}

	o.MaxRecord--
	got, err = sourcetest.Read(t.Context(), openFor(t, o), rng, sources.Position{}, g.Locator)
	tooLarge, ok := errors.AsType[*sources.TooLarge](err)
	if !ok || tooLarge.Size != int64(len(large)) || tooLarge.Position.Offset != 1 || len(got) != 1 {
		t.Errorf("with a smaller limit: %d records and %v", len(got), err)
	}

	_, port, _ := strings.Cut(b.Addr(), ":")
	left := 0
	slow := &reading{t: t, s: s}
	slow.whole(rng, g.Locator, func(records int) {
		if left > 0 || records < 100 {
			return
		}
		left++
		for deadline := time.Now().Add(5 * time.Minute); established(t, port) > 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the broker has not closed the idle connection")
			}
		}
	})
	if left != 1 || slow.records != len(want) {
		t.Errorf("%d records after %d pauses, want %d", slow.records, left, len(want))
	}
}
