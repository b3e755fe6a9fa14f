package pulsar

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// fakeEntry is an entry of a fakeBroker: its metadata and payload.
type fakeEntry struct {
	metadata, payload []byte
	damaged           func() bool // called each time it is sent; true: one of its bits is flipped
	left              bool        // the broker leaves it out
	stuck             bool        // a Reader that has come to it gets nothing more
	unknown           bool        // the admin API does not find it
	// If set, it comes in as many pieces as the channel has room, as over a slow link: the next one each time the
	// admin API was asked for the entry.
	pieces chan struct{}

	uuid  string
	chunk int
}

// fakeBroker is a scripted broker with one topic, t, and its admin API. It sends the entries of its ledgers
// in order, as long as the Reader has given permits.
type fakeBroker struct {
	*fakeAdmin
	l    net.Listener
	work sync.WaitGroup

	mu      sync.Mutex
	ids     []int64
	ledgers map[int64][]*fakeEntry
	conns   []net.Conn
	heads   int // how often the admin API was asked for an entry
}

// newFakeBroker starts a broker whose ledgers have these entries. The last ledger is open.
func newFakeBroker(t testing.TB, first int64, ledgers ...[]*fakeEntry) *fakeBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fakeBroker{fakeAdmin: newFakeAdmin(t), l: l, ledgers: map[int64][]*fakeEntry{}}
	var all [][2]int64
	for i, g := range ledgers {
		id := first + 2*int64(i)
		b.ids, b.ledgers[id] = append(b.ids, id), g
		all = append(all, [2]int64{id, int64(len(g))})
	}
	b.topic("t", "", all...)
	b.serves = b.serveEntry
	b.work.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, nc)
			b.mu.Unlock()
			b.work.Go(func() { b.run(nc) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.mu.Lock()
		for _, nc := range b.conns {
			_ = nc.Close()
		}
		b.mu.Unlock()
		b.work.Wait()
	})
	return b
}

// serveEntry answers the admin API's request for an entry.
func (b *fakeBroker) serveEntry(w http.ResponseWriter, _ *http.Request, path string) bool {
	var ledger, entry int64
	if n, _ := fmt.Sscanf(path, "t/ledger/%d/entry/%d", &ledger, &entry); n != 2 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heads++
	all := b.ledgers[ledger]
	if entry < 0 || entry >= int64(len(all)) || all[entry].unknown {
		w.WriteHeader(http.StatusNotFound)
		return true
	}
	select {
	case all[entry].pieces <- struct{}{}:
	default:
	}
	if e := all[entry]; e.uuid != "" {
		w.Header().Set("X-Pulsar-uuid", e.uuid)
		w.Header().Set("X-Pulsar-chunk-id", fmt.Sprint(e.chunk))
	}
	return true
}

func number(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func text(b []byte, n protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// numbersOf returns the numbers and the texts of a message of the protocol, by field.
func numbersOf(b []byte) (numbers map[protowire.Number]uint64, texts map[protowire.Number][]byte) {
	numbers, texts = map[protowire.Number]uint64{}, map[protowire.Number][]byte{}
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		b = b[size:]
		switch kind {
		case protowire.VarintType:
			numbers[n], size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			texts[n], size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		b = b[size:]
	}
	return numbers, texts
}

// Commands of the protocol, by their types.
const (
	wireConnect, wireConnected = 2, 3
	wireSubscribe, wireMessage = 4, 9
	wireFlow, wireSuccess      = 11, 13
	wireClose                  = 16
	wirePing, wirePong         = 18, 19
	wireLookup, wireLookedUp   = 23, 24
)

// fakeReader is a subscription: its place, and how many entries it may get.
type fakeReader struct {
	ledger  int // the index of its number
	entry   int64
	permits int64
}

func (b *fakeBroker) run(nc net.Conn) {
	defer nc.Close()
	pieces := chan struct{}(nil) // of the entry that is sent
	send := func(kind uint64, body, payload []byte) {
		command := protowire.AppendBytes(protowire.AppendTag(number(nil, 1, kind), protowire.Number(kind), protowire.BytesType), body)
		f := binary.BigEndian.AppendUint32(nil, uint32(4+len(command)+len(payload)))
		f = append(append(binary.BigEndian.AppendUint32(f, uint32(len(command))), command...), payload...)
		for n := len(f) / (cap(pieces) + 1); pieces != nil && len(f) > n; f = f[n:] {
			_, _ = nc.Write(f[:n])
			<-pieces
		}
		_, _ = nc.Write(f)
	}
	readers := map[uint64]*fakeReader{}
	for r := bufio.NewReader(nc); ; {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		numbers, texts := numbersOf(body)
		kind := numbers[1]
		numbers, texts = numbersOf(texts[protowire.Number(kind)])
		switch kind {
		case wireConnect:
			send(wireConnected, text(nil, 1, "fake"), nil)
		case wireLookup:
			send(wireLookedUp, number(number(text(nil, 1, b.service()), 3, 1), 4, numbers[2]), nil)
		case wireSubscribe:
			start, _ := numbersOf(texts[9])
			at := &fakeReader{entry: int64(start[2])}
			for at.ledger < len(b.ids) && b.ids[at.ledger] != int64(start[1]) {
				at.ledger++
			}
			readers[numbers[4]] = at
			send(wireSuccess, number(nil, 1, numbers[5]), nil)
		case wireClose:
			delete(readers, numbers[1])
			send(wireSuccess, number(nil, 1, numbers[2]), nil)
		case wirePing:
			send(wirePong, nil, nil)
		case wireFlow:
			at := readers[numbers[1]]
			if at == nil {
				continue
			}
			for at.permits += int64(numbers[2]); at.permits > 0; {
				e, ledger, entry := b.next(at)
				if e == nil {
					break
				}
				frame := framed(e.metadata, e.payload)
				if e.damaged != nil && e.damaged() {
					frame[len(frame)-1] ^= 1
				}
				id := number(number(nil, 1, uint64(ledger)), 2, uint64(entry))
				b.mu.Lock()
				pieces = e.pieces
				b.mu.Unlock()
				send(wireMessage, protowire.AppendBytes(protowire.AppendTag(number(nil, 1, numbers[1]), 2, protowire.BytesType), id), frame)
				pieces = nil
				at.permits--
			}
		}
	}
}

func (b *fakeBroker) service() string { return "pulsar://" + b.l.Addr().String() }

// next returns the next entry that is not left out.
func (b *fakeBroker) next(at *fakeReader) (e *fakeEntry, ledger, entry int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at.ledger < len(b.ids) {
		ledger, entry = b.ids[at.ledger], at.entry
		all := b.ledgers[ledger]
		if entry >= int64(len(all)) {
			if at.ledger == len(b.ids)-1 {
				break
			}
			at.ledger, at.entry = at.ledger+1, 0
			continue
		}
		if all[entry].stuck {
			break
		}
		if at.entry++; !all[entry].left {
			return all[entry], ledger, entry
		}
	}
	return nil, 0, 0
}

func metadataOf() []byte {
	return number(number(text(nil, 1, "producer"), 2, 7), 3, 1_700_000_000_000)
}

// framed is an entry in the form in which a broker sends it.
func framed(metadata, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(metadata)))
	b = append(append(b, metadata...), payload...)
	head := binary.BigEndian.AppendUint16(nil, 0x0e01)
	return append(binary.BigEndian.AppendUint32(head, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))), b...)
}

// plain is an entry with one message.
func plain(value string) *fakeEntry {
	return &fakeEntry{metadata: metadataOf(), payload: []byte(value)}
}

// chunkOf is chunk id of n of a message of total bytes.
func chunkOf(uuid string, id, n, total int, part string) *fakeEntry {
	m := number(text(metadataOf(), 26, uuid), 27, uint64(n))
	m = number(number(number(m, 28, uint64(total)), 29, uint64(id)), 9, uint64(total))
	return &fakeEntry{metadata: m, payload: []byte(part), uuid: uuid, chunk: id}
}

// open opens the topic t.
func (b *fakeBroker) open(t testing.TB, end brokers.At) *Source {
	t.Helper()
	s, err := Open(Options{Dataset: "test", Service: b.service(), Admin: b.url, Topics: []string{"t"},
		Start: End{At: brokers.Earliest}, End: End{At: end}, MaxRecord: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// read reads [from, to) of a ledger as an agent does: after a temporary error it opens another cursor after
// the last record. It tries at most `tries` times.
func (b *fakeBroker) read(ctx context.Context, s *Source, ledger, from, to int64, tries int) (values []string, err error) {
	return readAsAgent(ctx, s, partition{"public/default/t", 1769731200001}, ledger, from, to, tries)
}

func readAsAgent(ctx context.Context, s *Source, p partition, ledger, from, to int64, tries int) (values []string, err error) {
	r := sources.Range{Partition: p.id(), Segment: segmentOf(ledger), Start: from, End: to}
	at := from
	for range tries {
		var c sources.Cursor
		c, err = s.Open(ctx, r, sources.Position{Segment: r.Segment, Offset: at}, p.locator(ledger))
		if err != nil {
			return values, err
		}
		var batch sources.Batch
		for err == nil {
			if err = c.Next(ctx, &batch); err == nil {
				for _, rec := range batch.Recs {
					values = append(values, string(batch.Arena[rec.Value[0]:rec.Value[1]]))
				}
				at = max(batch.End, batch.Recs[len(batch.Recs)-1].Next)
			}
		}
		_ = c.Close()
		if !isTemporary(err) {
			break
		}
	}
	return values, err
}
