package shardsvc

import (
	"testing"

	"github.com/headrace/headrace/sources"
)

// crashWorld is a job of one dataset of 100 records. Its trainers run one after the other, and
// the master restarts after each of them.
type crashWorld struct {
	*world
	life uint32
}

func newCrashWorld(t *testing.T, isolate bool) *crashWorld {
	w := &crashWorld{world: newWorld(t, Config{Job: "j", Model: Shared})}
	w.step(&ApplyDataset{ID: 1, Name: "d", Options: Options{Passes: 1, Initial: 40, Min: 1, Max: 40, Target: Second, Unit: sources.Records, Isolate: isolate, MaxBad: 10}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "a"})
	w.step(&PartitionsListed{Dataset: 1})
	w.step(&AddSegments{Partition: 1, Complete: true, Segments: []sources.Segment{{End: 100, Sealed: true}}})
	return w
}

// grant gives the next lease of a new trainer.
func (w *crashWorld) grant() (r Reply) {
	w.life++
	w.step(&Message{Session: Session(w.life), Hello: &Hello{Agent: "a", Incarnation: uint64(w.life)},
		Joins: []Join{{Worker: w.life, Incarnation: uint64(w.life), WorldSize: 1}}})
	return w.more()
}

// more gives the next lease of the trainer that runs now.
func (w *crashWorld) more() (r Reply) {
	w.step(&Message{Session: Session(w.life), Requests: []LeaseRequest{{ID: uint64(w.life)<<32 | uint64(w.now), Worker: w.life, Dataset: 1}}})
	for _, r := range w.fx.Replies {
		if r.Kind == ReplyGrant {
			return r
		}
	}
	w.t.Fatalf("life %d: no grant", w.life)
	return r
}

func (w *crashWorld) ends(crash *Crash) {
	w.step(&Message{Session: Session(w.life), Leaves: []Leave{{Worker: w.life, Ended: true, Crash: crash}}})
	w.restart()
}

func crashWith(start, end int64, alone bool) *Crash {
	return &Crash{Suspects: []Suspect{{Dataset: 1, Partition: 1, Start: start, End: end}}, Alone: alone}
}

func TestARecordThatCrashesTwoTrainersAloneIsExcluded(t *testing.T) {
	w := newCrashWorld(t, true)
	want := func(r Reply, start, end int64, s Suspicion) {
		t.Helper()
		if r.Start != start || r.End != end || r.Suspicion != s {
			t.Fatalf("life %d: granted [%d, %d) with suspicion %d, want [%d, %d) with %d", w.life, r.Start, r.End, r.Suspicion, start, end, s)
		}
	}
	want(w.grant(), 0, 40, NoSuspicion)
	w.ends(crashWith(10, 20, false))

	want(w.grant(), 0, 10, NoSuspicion) // no trainer had it in hand
	r := w.more()
	want(r, 10, 20, Suspected)
	w.step(&Message{Session: Session(w.life), Acks: []Ack{{Token: r.Token, Prefix: 14, Step: 1}}})
	w.ends(crashWith(14, 15, true))

	want(w.grant(), 0, 10, NoSuspicion)
	want(w.more(), 14, 15, Suspected)
	w.ends(nil) // a trainer that was killed says nothing about the record

	want(w.grant(), 0, 10, NoSuspicion)
	want(w.more(), 14, 15, Suspected)
	w.ends(crashWith(14, 15, true))

	want(w.grant(), 0, 10, NoSuspicion)
	r = w.more()
	want(r, 14, 15, Convicted)
	w.step(&Message{Session: Session(w.life), Failures: []ReadFailure{{Token: r.Token, At: 14, When: 5,
		Bad: []BadRecord{{Start: 14, End: 15, Kind: BadCrash, Reason: "why", Value: []byte("v"), Size: 1}}}}})
	if d, _ := w.core.Dataset(1); d.Counts.Excluded != 1 {
		t.Fatalf("%+v", d.Counts)
	}
	if k := w.core.Letters(1, 10); len(k) != 1 || k[0].Kind != BadCrash || string(k[0].Value) != "v" || k[0].Start != 14 {
		t.Fatalf("letters %+v", k)
	}
	want(w.more(), 15, 20, NoSuspicion) // the record was found
}

func TestOnlyWhereItWasAskedForACrashMakesSuspects(t *testing.T) {
	w := newCrashWorld(t, false)
	w.grant()
	w.ends(crashWith(10, 20, false))
	if r := w.grant(); r.Suspicion != NoSuspicion || r.Start != 0 || r.End != 40 {
		t.Fatalf("%+v", r)
	}
	if d, _ := w.core.Dataset(1); d.Counts.Excluded != 0 {
		t.Fatalf("%+v", d.Counts)
	}
}

// A Leave that names ranges which are not pending again changes nothing.
func TestSuspectsThatAreNotPendingAreIgnored(t *testing.T) {
	w := newCrashWorld(t, true)
	r := w.grant()
	w.step(&Message{Session: Session(w.life), Acks: []Ack{{Token: r.Token, Prefix: 30, Step: 1}}})
	w.ends(&Crash{Suspects: []Suspect{{Dataset: 1, Partition: 1, Start: 0, End: 35}, {Dataset: 1, Partition: 9, End: 5}, {Dataset: 2, Partition: 1, End: 5},
		{Dataset: 1, Partition: 1, Pass: 7, End: 5}, {Dataset: 1, Partition: 1, Start: 50, End: 20}, {Dataset: 1, Partition: 1, Start: -4, End: 1 << 62}}, Alone: false})
	if r := w.grant(); r.Start != 30 || r.End != 35 || r.Suspicion != Suspected {
		t.Fatalf("%+v", r)
	}
}
