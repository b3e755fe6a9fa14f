//go:build pulsar

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/view"
	"github.com/headrace/headrace/sources"
)

const (
	pulsarLedger  = 5   // entries
	pulsarBatch   = 100 // records of an entry
	pulsarRecords = 4000
	pulsarParts   = 2
)

var pulsarBroker = sharedBroker[*testbroker.Pulsar]{start: func(ctx context.Context) (*testbroker.Pulsar, error) {
	return testbroker.StartPulsar(ctx, testbroker.PulsarOptions{EntriesPerLedger: pulsarLedger})
}}

// newPulsarTopic makes a topic that no other test uses, and returns its name.
func newPulsarTopic(t *testing.T, b *testbroker.Pulsar, of string) string {
	t.Helper()
	name := anotherTopic(of)
	if err := b.CreateTopic(t.Context(), name, pulsarParts); err != nil {
		t.Fatal(err)
	}
	return name
}

// pulsarClicks makes a topic with records. Its entries, of 100 records each, are in the two
// partitions by turns, so record i is in the entry i/100, counted over both.
func pulsarClicks(t *testing.T) (b *testbroker.Pulsar, topic string) {
	t.Helper()
	b = pulsarBroker.get(t)
	topic = newPulsarTopic(t, b, "clicks")
	a, err := testbroker.NewPulsarAppender(b, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for from := 0; from < pulsarRecords; from += pulsarBatch {
		var values [][]byte
		for i := from; i < from+pulsarBatch; i++ {
			values = append(values, fmt.Appendf(nil, "%d\t%d\tuser-%d", i%2, i, i%7))
		}
		entry := from / pulsarBatch
		if err := a.Append(t.Context(), entry%pulsarParts, int64(entry/pulsarParts*pulsarBatch), values, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	return b, topic
}

// pulsarTopic is what the broker says about a partition.
type pulsarTopic struct {
	Ledgers []struct{ LedgerID int64 }
	Cursors map[string]struct{ MarkDeletePosition string }
}

func pulsarStats(t *testing.T, b *testbroker.Pulsar, topic string, partition int) (s pulsarTopic) {
	t.Helper()
	text, err := b.Admin(t.Context(), http.MethodGet, fmt.Sprintf("persistent/public/default/%s-partition-%d/internalStats", topic, partition), nil)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each record is trained on once. When the broker does not answer, we say so. delete removes the
// dataset's subscriptions from the broker and says which they are.
func TestRunGivesTrainersEveryMessageOfAPulsarTopicOnceAndDeleteLeavesNothing(t *testing.T) {
	b, topic := pulsarClicks(t)
	part := fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s", b.URL(), b.AdminURL(), topic)
	w := newWorld(t)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "files: {root: data}", part+", subscription: trainers}", 1))
	if out := w.ok("dataset", "check", "-f", "clicks.yaml"); !strings.Contains(out, "0 bad") {
		t.Errorf("check says %s, want 0 bad records", out)
	}
	up := w.up("-f", "clicks.yaml")
	const sum = pulsarRecords * (pulsarRecords - 1) / 2
	out := w.ok("run", "--nproc-per-node", "2", "--", w.self(""))
	if rows, got := read(t, out); rows != pulsarRecords || got != sum {
		t.Errorf("rows %d sum %d, want %d and %d\n%s", rows, got, pulsarRecords, sum, out)
	}
	subscriptions := func() (all []string) {
		for p := range pulsarParts {
			for name := range pulsarStats(t, b, topic, p).Cursors {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	// Each reader of the official client has a subscription of its own, which ends a little after the last record was read.
	up.until("no subscriptions but ours", func() bool {
		return slices.Equal(subscriptions(), []string{"trainers", "trainers", "trainers-retain", "trainers-retain"})
	})
	removed := "subscriptions trainers and trainers-retain of " + topic
	if out := w.ok("delete", "clicks", "--dry-run"); !strings.Contains(out, removed) || len(subscriptions()) != 2*pulsarParts {
		t.Errorf("delete --dry-run says %q, and the broker then has the subscriptions %q; want it to name ours and to leave them", out, subscriptions())
	}
	if out := w.ok("delete", "clicks", "--yes"); !strings.Contains(out, removed) || len(subscriptions()) != 0 {
		t.Errorf("delete says %q, and the broker then has the subscriptions %q; want it to name ours and to remove them", out, subscriptions())
	}
	up.stop()
	w.nothingLeft()

	frozen := newWorld(t)
	frozen.silence(part, b.Freeze, b.Thaw)
	frozen.nothingLeft()
}

// A TTL moves the subscriptions past messages that are not read yet, and the broker deletes
// these messages. With on_loss: stop (the default) the dataset stops, and its reason names the
// partition and what can be done. With on_loss: continue exactly the deleted ledgers are
// excluded, and every other record is trained on once.
func TestWhatPulsarLosesStopsTheDatasetOrIsExcludedExactly(t *testing.T) {
	b, topic := pulsarClicks(t)
	w := newWorld(t)
	spec := strings.Replace(clicksSpec, "files: {root: data}",
		fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s, subscription: trainers}\nguard: {every: 200ms}", b.URL(), b.AdminURL(), topic), 1)
	w.write("clicks.yaml", spec)
	up := w.up("-f", "clicks.yaml")
	status := func() view.Status { return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json")) }
	defer func() {
		if t.Failed() {
			t.Logf("status: %s", w.run("dataset", "status", "clicks", "-o", "json").out)
			for p := range pulsarParts {
				text, err := b.Admin(context.Background(), http.MethodGet, fmt.Sprintf("persistent/public/default/%s-partition-%d/internalStats", topic, p), nil)
				t.Logf("partition %d at the broker: %s %v", p, text, err)
			}
		}
	}()
	const entries = pulsarRecords / pulsarBatch
	up.until("all is listed", func() bool { return status().Counts.Listed == entries })

	const lost = 2 * pulsarLedger // entries of each partition
	sum := int64(pulsarRecords * (pulsarRecords - 1) / 2)
	for i := int64(0); i < pulsarParts*lost*pulsarBatch; i++ {
		sum -= i
	}
	if _, err := b.Admin(t.Context(), http.MethodPost, "persistent/public/default/"+topic+"/retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for p := range pulsarParts {
		path := fmt.Sprintf("persistent/public/default/%s-partition-%d", topic, p)
		ledgers := pulsarStats(t, b, topic, p).Ledgers
		for k := range 2 {
			gone = append(gone, fmt.Sprintf("%s-partition-%d ledger %d [0, %d)", topic, p, ledgers[k].LedgerID, int64(pulsarLedger)<<sources.EntryBits))
		}
		first := ledgers[2].LedgerID
		up.until("the broker has deleted two ledgers", func() bool {
			for _, name := range []string{"trainers", "trainers-retain"} { // the test moves them as a TTL does
				_, _ = b.Admin(t.Context(), http.MethodPost, path+"/subscription/"+name+"/resetcursor", map[string]int64{"ledgerId": first, "entryId": 0, "partitionIndex": -1})
			}
			_, _ = b.Admin(t.Context(), http.MethodPost, path+"/trim", nil)
			return pulsarStats(t, b, topic, p).Ledgers[0].LedgerID == first
		})
	}

	first := w.start("run", "--max-restarts", "0", "--", w.self(""))
	first.until("the dataset stops", func() bool { return status().State == "failed" })
	first.signal(syscall.SIGTERM)
	first.wait()
	v := status()
	if !strings.Contains(v.Reason, "on_loss: continue") || !strings.Contains(v.Reason, topic+"-partition-") || len(v.Excluded) > 0 {
		t.Errorf("the dataset stopped with the reason %q and the excluded ranges %+v; want a reason that names a partition and on_loss: continue, and nothing excluded", v.Reason, v.Excluded)
	}
	w.write("clicks.yaml", spec+"on_loss: continue\n")
	w.ok("dataset", "apply", "-f", "clicks.yaml")
	w.ok("dataset", "resume", "clicks")
	out := w.ok("run", "--max-restarts", "0", "--", w.self(""))
	if rows, got := read(t, out); rows != pulsarRecords-pulsarParts*lost*pulsarBatch || got != sum {
		t.Errorf("%d rows with the sum %d, want %d and %d", rows, got, pulsarRecords-pulsarParts*lost*pulsarBatch, sum)
	}
	v = status()
	var excluded []string
	for _, e := range v.Excluded {
		if e.Kind != "truncated" {
			t.Errorf("an excluded range has the kind %s, want truncated: %+v", e.Kind, e)
		}
		excluded = append(excluded, fmt.Sprintf("%s ledger %d [%d, %d)", e.Label, e.Segment>>4, e.Start, e.End))
	}
	slices.Sort(gone)
	if slices.Sort(excluded); !slices.Equal(excluded, gone) {
		t.Errorf("excluded are\n%q, want the deleted ledgers\n%q", excluded, gone)
	}
	if v.Counts.Excluded != pulsarParts*lost || v.Counts.Acked != entries-pulsarParts*lost || v.State != "done" {
		t.Errorf("at the end the status is %+v, want done, with %d entries excluded and all others acknowledged", v, pulsarParts*lost)
	}
	up.stop()
	w.nothingLeft()
}

func TestReadersOutliveAPulsarBrokerThatIsFrozenForLongAndKilled(t *testing.T) {
	b, err := testbroker.StartPulsar(t.Context(), testbroker.PulsarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	// The appender sends an entry again when its connection ends before the answer, as it does after a freeze.
	if err := b.Deduplicate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.CreateTopic(t.Context(), "clicks", 1); err != nil {
		t.Fatal(err)
	}
	a, err := testbroker.NewPulsarAppender(b, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	newWorld(t).outlives(fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: clicks", b.URL(), b.AdminURL()), b, func(first int) int64 {
		if err := a.Append(t.Context(), 0, int64(first), numbered(first, 64*modeBatch), func() {}); err != nil {
			t.Fatal(err)
		}
		return 1 // entry
	})
}
