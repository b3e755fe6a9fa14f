//go:build pulsar

package pulsar

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A topic's own policies count as the broker says that they are in force: a TTL, a quota that evicts, and a
// retention.
func TestDeletionByATTLAndByAQuotaIsForetold(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 2)
	writeTo(t, b, topic, 2, 0, 100)
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Never)
	o.Retain, o.Progress = "keeps-retain", "keeps"
	s := mustOpen(t, o)
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	var marks []sources.Mark
	for _, id := range ids {
		g := sourcetestSegments(t, s, id)[0]
		marks = append(marks, sources.Mark{Partition: id, Position: sources.Position{Segment: g.ID, Offset: g.Start}})
	}
	set := func(what string, body any) {
		admincall(t, b, http.MethodPost, "persistent/public/default/"+topic+"/"+what, body)
	}
	// until the broker has taken a policy over, and then of both partitions.
	keeps := func(what string, is func(k sources.Kept) bool) {
		t.Helper()
		deadline := time.Now().Add(5 * time.Minute)
		for {
			s.mu.Lock()
			clear(s.policies)
			s.mu.Unlock()
			all, err := s.Keeps(t.Context(), marks, time.Hour)
			if err == nil {
				err = errors.Join(all[0].Err, all[1].Err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if is(all[0]) && is(all[1]) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v (%v)", what, all, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	const never = sources.Never
	keeps("nothing deletes", func(k sources.Kept) bool {
		return k.ByAge == never && k.Room == never && k.Retention == never && k.Retained && k.Blind == "" && k.Head.Segment > 0
	})
	set("messageTTL?messageTTL=3600", nil)
	keeps("a TTL, and a retention that keeps all", func(k sources.Kept) bool { return k.ByAge == never && k.Retention == never })
	set("retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	keeps("a TTL of an hour", func(k sources.Kept) bool {
		return k.Retention == time.Hour && k.ByAge <= time.Hour && k.ByAge > 50*time.Minute && k.Room == never
	})
	set("retention", map[string]int{"retentionTimeInMinutes": 120, "retentionSizeInMB": -1})
	keeps("a TTL of an hour, and two hours of retention", func(k sources.Kept) bool {
		return k.Retention == 2*time.Hour && k.ByAge > 110*time.Minute
	})
	set("retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	set("backlogQuota?backlogQuotaType=message_age", map[string]any{"limitTime": 1800, "limitSize": -1, "policy": "consumer_backlog_eviction"})
	keeps("a quota of half an hour", func(k sources.Kept) bool { return k.Retention == 30*time.Minute })
	set("backlogQuota?backlogQuotaType=destination_storage", map[string]any{"limitSize": 1 << 30, "limitTime": -1, "policy": "consumer_backlog_eviction"})
	keeps("a quota of 1 GiB", func(k sources.Kept) bool { return k.Room > 1<<indexBits && k.Room < never })
	set("backlogQuota?backlogQuotaType=destination_storage", map[string]any{"limitSize": 10, "limitTime": -1, "policy": "consumer_backlog_eviction"})
	keeps("a quota of 10 bytes", func(k sources.Kept) bool { return k.Room < 0 })
	set("backlogQuota?backlogQuotaType=destination_storage", map[string]any{"limitSize": 10, "limitTime": -1, "policy": "producer_request_hold"})
	keeps("a quota that makes producers wait", func(k sources.Kept) bool { return k.Room == never })
	for n := range 2 {
		admincall(t, b, http.MethodDelete, "persistent/public/default/"+partitionNames(topic, 2)[n]+"/subscription/keeps-retain?force=true", nil)
	}
	keeps("the subscription is gone", func(k sources.Kept) bool { return k.Room < 0 && !k.Retained })

	admincall(t, b, http.MethodDelete, "persistent/public/default/"+topic+"/partitions?force=true", nil)
	all, err := s.Keeps(t.Context(), marks, -1)
	if err != nil || !all[0].Gone || all[0].Err == nil {
		t.Errorf("for a deleted topic: %+v (%v)", all, err)
	}
}

// A TTL passes entries that are still needed, and their ledger is deleted. The guard sees where the topic
// begins now, and reading names the exact range that is lost.
func TestWhatATTLHasDeletedIsNamed(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest)
	o.Retain, o.Progress = "ttl-retain", "ttl"
	s := mustOpen(t, o)
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		writeTo(t, b, topic, 0, k*30, 30)
		admincall(t, b, http.MethodPut, "persistent/public/default/"+topic+"/unload", nil)
	}
	segs := sourcetestSegments(t, s, ids[0])
	if len(segs) != 3 {
		t.Fatalf("%d segments", len(segs))
	}
	path := "persistent/public/default/" + topic
	admincall(t, b, http.MethodPost, path+"/retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	mark := []sources.Mark{{Partition: ids[0], Position: sources.Position{Segment: segs[0].ID, Offset: segs[0].Start}}}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		// Pulsar applies a TTL every few minutes; do it now.
		_, _ = b.Admin(t.Context(), http.MethodPost, path+"/all_subscription/expireMessages/1", nil)
		_, _ = b.Admin(t.Context(), http.MethodPost, path+"/trim", nil)
		all, err := s.Keeps(t.Context(), mark, -1)
		if err != nil && !isTemporary(err) {
			t.Fatal(err)
		}
		if err == nil && all[0].Low.Segment > segs[0].ID {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was deleted: %+v (%v)", all, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, err = readTexts(t.Context(), s, ids[0], segs[0])
	lost, ok := errors.AsType[*sources.Truncated](err)
	if !ok || lost.Lost.Segment != segs[0].ID || lost.Lost.Start != segs[0].Start || lost.Lost.End != segs[0].End {
		t.Errorf("reading what a TTL has deleted: %v; want [%d, %d) of segment %d", err, segs[0].Start, segs[0].End, segs[0].ID)
	}
}

// Policies of the topic's namespace count like those of the topic.
func TestPoliciesOfTheNamespaceAreForetold(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	namespace := fmt.Sprintf("public/n%d", os.Getpid())
	admincall(t, b, http.MethodPut, "namespaces/"+namespace, nil)
	set := func(what string, body any) { admincall(t, b, http.MethodPost, "namespaces/"+namespace+"/"+what, body) }
	set("retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	if err := b.CreateTopicIn(t.Context(), namespace, "t", 0); err != nil {
		t.Fatal(err)
	}
	p := producer(t, client.ProducerOptions{Topic: "persistent://" + namespace + "/t", DisableBatching: true})
	send(t, p, &client.ProducerMessage{Payload: make([]byte, 1000)})
	o := (&place{b: b, topic: namespace + "/t", max: 1 << 20}).options(brokers.Never)
	o.Retain, o.Progress = "n-retain", "n"
	s := mustOpen(t, o)
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err == nil {
		err = s.Begin(t.Context(), ids)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	keeps := func(what string, is func(k sources.Kept) bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			s.mu.Lock()
			clear(s.policies)
			s.mu.Unlock()
			all, err := s.Keeps(t.Context(), []sources.Mark{{Partition: ids[0], Position: sources.Position{Segment: g.ID, Offset: g.Start}}}, time.Hour)
			if err == nil {
				err = all[0].Err
			}
			if err != nil && !isTemporary(err) {
				t.Fatal(err)
			}
			if err == nil && is(all[0]) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v (%v)", what, all, err)
			}
		}
	}
	const never = sources.Never
	keeps("nothing moves NAME-retain", func(k sources.Kept) bool { return k.ByAge == never && k.Room == never && k.Retained })
	set("messageTTL", 3600)
	keeps("a TTL of an hour", func(k sources.Kept) bool { return k.Retention == time.Hour && k.ByAge <= time.Hour && k.Room == never })
	set("retention", map[string]int{"retentionTimeInMinutes": 120, "retentionSizeInMB": -1})
	keeps("two hours of retention", func(k sources.Kept) bool { return k.Retention == 2*time.Hour })
	set("retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	set("backlogQuota?backlogQuotaType=message_age", map[string]any{"limitTime": 1800, "limitSize": -1, "policy": "consumer_backlog_eviction"})
	keeps("a quota of half an hour", func(k sources.Kept) bool { return k.Retention == 30*time.Minute })
	set("backlogQuota?backlogQuotaType=destination_storage", map[string]any{"limitSize": 100, "limitTime": -1, "policy": "consumer_backlog_eviction"})
	keeps("a quota of 100 bytes", func(k sources.Kept) bool { return k.Room < 0 })
}
