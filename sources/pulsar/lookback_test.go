package pulsar

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A first chunk is looked for, however far back it is. It is lost only if its ledger is deleted.
func TestTheFirstChunkOfAMessageIsLookedForAsFarAsTheTopicGoes(t *testing.T) {
	far := []*fakeEntry{chunkOf("ours", 0, 2, 8, "1234")}
	other := plain("other")
	for range 10_100 {
		far = append(far, other)
	}
	b := newFakeBroker(t, 5, far, nil, []*fakeEntry{plain("before"), chunkOf("ours", 1, 2, 8, "5678")})
	s := b.open(t, brokers.Latest)
	if got, err := b.read(t.Context(), s, 9, at(1, 0), at(2, 0), 1); err != io.EOF || !slices.Equal(got, []string{"12345678"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// The admin API may fail once in many thousands of questions. Then the next cursor goes on from there.
func TestALookForTheFirstChunkGoesOnWhereItFailed(t *testing.T) {
	far := []*fakeEntry{chunkOf("ours", 0, 2, 8, "1234")}
	for range 50 {
		far = append(far, plain("other"))
	}
	b := newFakeBroker(t, 5, far, []*fakeEntry{plain("before"), chunkOf("ours", 1, 2, 8, "5678")})
	var asked atomic.Int32
	b.serves = func(w http.ResponseWriter, r *http.Request, path string) bool {
		if strings.Contains(path, "/entry/") && asked.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return b.serveEntry(w, r, path)
	}
	s := b.open(t, brokers.Latest)
	if got, err := b.read(t.Context(), s, 7, at(1, 0), at(2, 0), 10); err != io.EOF || !slices.Equal(got, []string{"12345678"}) || asked.Load() != 52+5 {
		t.Errorf("%q, %v, after %d questions", got, err, asked.Load())
	}
	for i := range int64(10 * lookbacksMost) {
		s.lookbacks.keep(lookback{of: spot{entry: i}, entry: 1})
	}
	if _, entry := s.lookbacks.take(spot{entry: 10*lookbacksMost - 1}); entry != 1 || len(s.lookbacks.all) != lookbacksMost-1 {
		t.Errorf("it goes on at entry %d; %d others are kept", entry, len(s.lookbacks.all))
	}
}

func TestAMessageHasLostItsFirstChunkOnlyIfItsLedgerIsGone(t *testing.T) {
	entries := func() []*fakeEntry {
		return []*fakeEntry{plain("a"), plain("b"), chunkOf("ours", 1, 2, 8, "5678"), plain("c")}
	}
	lost := func(err error) (*sources.Truncated, bool) { return errors.AsType[*sources.Truncated](err) }

	b := newFakeBroker(t, 7, entries())
	if _, err := b.read(t.Context(), b.open(t, brokers.Latest), 7, at(2, 0), at(4, 0), 1); err == nil {
		t.Error("it is read")
	} else if e, ok := lost(err); !ok || e.Lost.Start != at(2, 0) || e.Lost.End != at(3, 0) || !strings.Contains(err.Error(), "t ledger 7") || !strings.Contains(err.Error(), "entry 2") {
		t.Errorf("with a topic that begins after the first chunk: %v", err)
	}

	// Pulsar deletes the ledger while the chunk is looked for.
	b = newFakeBroker(t, 5, []*fakeEntry{chunkOf("ours", 0, 2, 8, "1234")}, entries())
	b.serves = func(w http.ResponseWriter, r *http.Request, path string) bool {
		if strings.HasPrefix(path, "t/ledger/5/") {
			b.layout("t", "", [2]int64{7, 4})
			return false
		}
		return b.serveEntry(w, r, path)
	}
	if _, err := b.read(t.Context(), b.open(t, brokers.Latest), 7, at(2, 0), at(4, 0), 1); err == nil {
		t.Error("it is read")
	} else if e, ok := lost(err); !ok || e.Lost.Start != at(2, 0) || e.Lost.End != at(3, 0) {
		t.Errorf("with the ledger deleted meanwhile: %v", err)
	}

	// The broker does not know an entry, although its ledger is there.
	for _, unknown := range []int{0, 1} {
		all := entries()
		all[unknown].unknown = true
		b = newFakeBroker(t, 5, []*fakeEntry{chunkOf("ours", 0, 2, 8, "1234")}, all)
		s := b.open(t, brokers.Latest)
		_, err := b.read(t.Context(), s, 7, at(2, 0), at(4, 0), opensMost)
		if !isTemporary(err) {
			t.Errorf("entry %d unknown: %v, want a temporary error", unknown, err)
		}
		s.tries.silence = 0
		_, err = b.read(t.Context(), s, 7, at(2, 0), at(4, 0), 1)
		m, ok := errors.AsType[*sources.Malformed](err)
		if !ok || m.Position.Offset != at(2, 0) || !strings.Contains(err.Error(), fmt.Sprint("7:", unknown)) {
			t.Errorf("entry %d unknown for long: %v, want an error that names it", unknown, err)
		}
	}
}
