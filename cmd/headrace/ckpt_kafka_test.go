//go:build kafka

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

// trained runs a trainer to its end, or to the step after which it is killed. It returns the ids that
// the trainer stepped.
func (w *world) trained(stop int) (restored string, ids []int) {
	w.t.Helper()
	return w.trainedKeeping(stop, 3)
}

// inModel asks the audit which offsets are in a checkpoint's model. low has, by partition, the first
// offset that is not.
func (w *world) inModel(path string) (units int64, low map[int]int64, has func(partition int, offset int64) bool) {
	w.t.Helper()
	v := decoded[ckpt.Audit](w.t, w.ok("audit", path, "-o", "json"))
	low = map[int]int64{}
	ranges := map[int][][2]int64{}
	for _, p := range v.Datasets[0].Partitions {
		for _, ps := range p.Passes {
			for _, r := range ps.Ranges {
				no, err := strconv.Atoi(r.Name[strings.LastIndexByte(r.Name, '/')+1:])
				if err != nil {
					w.t.Fatal(err)
				}
				ranges[no] = append(ranges[no], [2]int64{r.Start, r.End})
				if r.Start == low[no] {
					low[no] = r.End
				}
			}
		}
	}
	return v.Datasets[0].Units, low, func(partition int, offset int64) bool {
		return slices.ContainsFunc(ranges[partition], func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
	}
}

// counted compares a checkpoint's count of records, and their oldest and newest time, with the ids from
// 0 to n-1 that are in its model. Record id is in partition id % partitions at offset id / partitions,
// with the time that events gave it.
func (w *world) counted(path string, n, partitions int) {
	w.t.Helper()
	r := decoded[ckpt.Audit](w.t, w.ok("audit", path, "-o", "json")).Datasets[0].Records
	_, _, has := w.inModel(path)
	var ids []int
	for id := range n {
		if has(id%partitions, int64(id/partitions)) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 || r.Rows != int64(len(ids)) || r.Untold != 0 || r.Oldest == nil ||
		r.Oldest.UnixMilli() != int64(1_700_000_000_000+ids[0]) || r.Newest.UnixMilli() != int64(1_700_000_000_000+ids[len(ids)-1]) {
		w.t.Errorf("%s says that its records are %s, want %d, the ids from %d to %d", path, r.Sentence(), len(ids), ids[0], ids[len(ids)-1])
	}
}

// committed returns the offsets that the broker was told, by the topic's partitions.
func committed(t *testing.T, b *testbroker.Broker, topic string, partitions int) map[int]int64 {
	t.Helper()
	client, done := b.Client()
	defer done()
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	res, err := client.OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{GroupID: group(topic), Topics: map[string][]int{topic: all}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]int64{}
	for _, p := range res.Topics[topic] {
		out[p.Partition] = max(p.CommittedOffset, 0)
	}
	return out
}

// On a real Kafka: the broker is told the progress of the newest bound checkpoint, and no more. A rewind
// moves it back before the rewind is answered. A checkpoint restores on a master without state, although
// the topic has grown.
func TestACheckpointOfAKafkaTopicItsCommitsAndItsRewind(t *testing.T) {
	b := steadyKafka.get(t)
	const n, more, partitions = 6000, 600, 3
	topic := newTopic(t, b, partitions, nil)
	events(t, b, topic, partitions, 0, n)
	w := newWorld(t)
	w.example(b, topic)
	up := w.up("-f", "events.yaml", "--model", "replicated")
	// Record id lies in partition id % partitions at offset id / partitions.
	all := func(n int, has func(int, int64) bool) (ids []int) {
		for id := range n {
			if !has(id%partitions, int64(id/partitions)) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	told := func(path string) (is bool, text string) {
		_, low, _ := w.inModel(path)
		was := committed(t, b, topic, partitions)
		for p := range partitions {
			if was[p] != low[p] {
				return false, fmt.Sprintf("the broker was told %v, the low marks of %s are %v", was, path, low)
			}
		}
		return true, ""
	}

	if _, ids := w.trained(23); len(ids) != 2300 {
		t.Fatalf("%d records came in 23 steps, want 2300", len(ids))
	}
	ckpts := decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json"))
	if len(ckpts) != 3 || ckpts[0].Step != 20 || ckpts[2].Step != 10 || ckpts[2].Ledger != "bound" {
		t.Fatalf("the checkpoints are %+v, want the bound ones of the steps 20, 15 and 10", ckpts)
	}
	for _, c := range ckpts {
		w.counted(c.Path, n, partitions)
	}
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(last)
		}
	})
	up.until("the newest checkpoint is told", func() (is bool) { is, last = told(ckpts[0].Path); return is })

	w.ok("rewind", "default", "--to", ckpts[2].Path, "--yes")
	if is, text := told(ckpts[2].Path); !is {
		t.Error(text)
	}
	units, low, has := w.inModel(ckpts[2].Path)
	if units != 1000 || len(low) == 0 {
		t.Errorf("%d records are in the model at step 10, want 1000; the low marks are %v", units, low)
	}
	for _, p := range slices.Sorted(maps.Keys(low)) {
		for _, offset := range []int64{low[p] - 1, low[p]} {
			r := w.run("audit", ckpts[2].Path, "--contains", fmt.Sprintf("%s/%d/%d", topic, p, offset), "-o", "json")
			v := decoded[ckpt.Containing](t, r.out)
			if v.In != has(p, offset) || v.In != (r.code == exitOK) || v.Found[0].Label != fmt.Sprintf("%s/%d", topic, p) {
				t.Errorf("the audit says of %s/%d/%d %+v with exit code %d, want in the model: %v", topic, p, offset, v, r.code, has(p, offset))
			}
		}
	}

	up.kill() // then its state folder is removed
	if err := os.RemoveAll(w.path("state")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.socket()); err != nil {
		t.Fatal(err)
	}
	for _, c := range ckpts[:2] { // the rewind voided them, but the new master does not know that
		w.ok("ckpt", "rm", filepath.Dir(c.Path), "--offline", "--yes", "--keep", "1", "--dry-run")
		if err := os.RemoveAll(filepath.Dir(c.Path)); err != nil {
			t.Fatal(err)
		}
	}
	events(t, b, topic, partitions, n, more)
	up = w.up("-f", "events.yaml", "--model", "replicated")
	up.until("all is listed", func() bool {
		return regexp.MustCompile(`(?m)^listed +6,600$`).MatchString(w.ok("dataset", "describe", "events"))
	})
	restored, ids := w.trained(0)
	slices.Sort(ids)
	if want := all(n+more, has); restored != "10" || !slices.Equal(ids, want) {
		t.Errorf("the trainer restored step %s and got %d records; want step 10 and the %d that are not in the checkpoint\n%s", restored, len(ids), len(want), up.err)
	}
	newest := decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json"))[0]
	if newest.Step <= 10 {
		t.Errorf("the newest checkpoint is %+v, want one of a step above 10", newest)
	}
	w.counted(newest.Path, n+more, partitions)
	up.stop()
	w.nothingLeft()
}
