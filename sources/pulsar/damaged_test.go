//go:build pulsar

package pulsar

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// relay passes connections on to the broker, and changes the frames that come from it. Where the broker
// names its own address for a topic, the relay's address is put in.
func relay(t testing.TB, broker string, change func(frame []byte)) (service string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	from, to := []byte(strings.TrimPrefix(broker, "pulsar://")), []byte(l.Addr().String())
	if len(from) != len(to) {
		t.Fatalf("%s and %s are not of the same length", from, to)
	}
	var work sync.WaitGroup
	pass := func(up, down net.Conn) {
		defer up.Close()
		defer down.Close()
		for r := bufio.NewReader(down); ; {
			var head [4]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			frame := make([]byte, binary.BigEndian.Uint32(head[:]))
			if _, err := io.ReadFull(r, frame); err != nil {
				return
			}
			copy(frame, bytes.ReplaceAll(frame, from, to))
			change(frame)
			if _, err := up.Write(append(head[:], frame...)); err != nil {
				return
			}
		}
	}
	work.Go(func() {
		for {
			up, err := l.Accept()
			if err != nil {
				return
			}
			down, err := net.Dial("tcp", string(from))
			if err != nil {
				_ = up.Close()
				continue
			}
			work.Go(func() { pass(up, down) })
			work.Go(func() { _, _ = io.Copy(down, up); _ = down.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	return "pulsar://" + l.Addr().String()
}

// An entry with a wrong checksum is read again, because it may have been damaged on its way. If it is wrong
// three times, the error names it.
func TestAnEntryThatComesDamagedIsReadAgainAndThenNamed(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	values := []string{"one", "the damaged one", "three"}
	for _, v := range values {
		send(t, p, &client.ProducerMessage{Payload: []byte(v)})
	}
	for _, damages := range []int32{opensMost - 1, opensMost} {
		var left atomic.Int32
		left.Store(damages)
		o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest)
		o.Service = relay(t, b.URL(), func(frame []byte) {
			if i := bytes.Index(frame, []byte(values[1])); i >= 0 && left.Add(-1) >= 0 {
				frame[i] ^= 1
			}
		})
		s := mustOpen(t, o)
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g := sourcetestSegments(t, s, ids[0])[0]
		got, err := readAsAgent(t.Context(), s, s.All()[ids[0]], ledgerOf(g.ID), g.Start, g.End, 10)
		want := values
		if damages == opensMost {
			want = values[:1]
			bad, ok := errors.AsType[*sources.Malformed](err)
			if !ok || bad.Position.Offset != at(1, 0) || !strings.Contains(bad.What, "checksum") || !strings.Contains(bad.Name, "entry 1") {
				t.Errorf("%d damages: %v", damages, err)
			}
		} else if err != io.EOF {
			t.Errorf("%d damages: %v", damages, err)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || left.Load() > 0 {
			t.Errorf("%d damages, %d of them unused: %q, want %q", damages, max(0, left.Load()), got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
