package pulsar

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources/brokers"
)

// However many chunked messages begin and do not end, and however many Readers are kept, their bytes are
// bounded. Messages that end are read.
func TestUnfinishedMessagesOfAllReadersAreBounded(t *testing.T) {
	const each, room = 20, 1000
	whole := strings.Repeat("x", 200)
	var all []*fakeEntry
	for i := range each * idleMost {
		all = append(all, chunkOf(fmt.Sprint("unfinished", i), 0, 2, len(whole), whole[:100]))
		if i%each == each/2 {
			all = append(all, chunkOf(fmt.Sprint("ours", i), 0, 2, len(whole), whole[:100]))
		}
		if i%each == each-1 {
			all = append(all, chunkOf(fmt.Sprint("ours", i-each/2+1), 1, 2, len(whole), whole[100:]))
		}
	}
	b := newFakeBroker(t, 5, all, nil)
	s := b.open(t, brokers.Latest)
	s.partRoom = room
	step := at(int64(len(all)/idleMost)-1, 0) // far enough for each range to have a Reader of its own
	var got []string
	for from := int64(0); from < at(int64(len(all)), 0); from += step + at(1, 0) {
		some, err := b.read(t.Context(), s, 5, from, from+step, 1)
		if err != io.EOF {
			t.Fatal(err)
		}
		got = append(got, some...)
		last, err := b.read(t.Context(), s, 5, from+step, from+step+at(1, 0), 1) // goes on with its Reader
		if err != io.EOF {
			t.Fatal(err)
		}
		got = append(got, last...)
		if n := s.partBytes.Load(); n > room {
			t.Fatalf("%d bytes of chunks are kept, want at most %d", n, room)
		}
	}
	if len(got) != idleMost || slices.ContainsFunc(got, func(one string) bool { return one != whole }) {
		t.Errorf("%d messages, want %d", len(got), idleMost)
	}
	s.mu.Lock()
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, r := range idle {
		r.end()
	}
	if n := s.partBytes.Load(); n != 0 {
		t.Errorf("%d bytes of chunks still count, although no Reader is left", n)
	}
}

func TestAnAnswerOfTheAdminAPIIsBounded(t *testing.T) {
	a := newFakeAdmin(t)
	a.serves = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		for range 100 {
			_, _ = io.WriteString(w, strings.Repeat(" ", 1000))
		}
		_, _ = io.WriteString(w, `{"partitions": 0}`)
		return true
	}
	s := a.open(t, brokers.Latest, "t")
	if s.admin.most != adminMost {
		t.Errorf("an answer of the admin API may have %d bytes", s.admin.most)
	}
	s.admin.most = 99_999
	_, err := s.Partitions(t.Context())
	if err == nil || isTemporary(err) || !strings.Contains(err.Error(), "99999 bytes") || !strings.Contains(err.Error(), "persistent/public/default/t/partitions") || !strings.Contains(err.Error(), "pulsar.admin") {
		t.Error(err)
	}
}
