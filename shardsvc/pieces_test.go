package shardsvc

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// The acks of all steps of a trainer between two commits are stored under one key. Acks of
// steps below the history fold before they are stored.
func TestStepsThatComeTogetherAreFewKeys(t *testing.T) {
	w := newWorld(t, Config{Job: "j", Model: Replicated, History: 100})
	w.step(&ApplyDataset{ID: 1, Name: "d", Spec: []byte("{}"), Options: Options{Passes: 1, Initial: 100000, Min: 1, Max: 100000, Target: Second, Unit: "bytes"}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "p"})
	w.step(&AddSegments{Partition: 1, Segments: []sources.Segment{{End: 100000, Sealed: true}}, Complete: true})
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 5, WorldSize: 1}},
		Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1, Count: 1}}})
	lease := w.fx.Replies[len(w.fx.Replies)-1].Token
	step, puts := int64(0), 0
	for range 50 {
		m := &Message{Session: 1}
		for range 200 {
			step++
			m.Acks = append(m.Acks, Ack{Token: lease, Prefix: 2 * step, Step: step, From: 2*step - 2, Told: true, Rows: 1})
		}
		m.Steps = []StepReport{{1, step}}
		w.step(m)
		for _, p := range w.fx.Puts {
			if p.Key[0] == keyAck {
				puts++
			}
		}
		if err := w.core.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	}
	// Of each 200 steps, the older 100 fold into the first key. The newer 100 are in three keys:
	// the end of one run of 64 pieces, a whole run, and a rest. The next 200 steps delete these.
	if most := 50 * 7; puts > most {
		t.Errorf("%d steps were %d puts, want at most %d", step, puts, most)
	}
	before := fmt.Sprint(allPieces(w.core))
	w.restart()
	if after := fmt.Sprint(allPieces(w.core)); after != before {
		t.Errorf("after a restart the pieces are\n%s\nwant\n%s", after, before)
	}
}

// allPieces returns the acks of partition 1, however they are stored.
func allPieces(c *Core) (all []piece) {
	for _, ps := range c.partition(1).passes {
		for _, k := range ps.acks {
			k.inKey = inKey{}
			all = append(all, k)
		}
	}
	return all
}

// Stores that are older than runs have one piece in each key, with or without its records.
func TestAnAckOfAnOlderVersionIsRead(t *testing.T) {
	old := appendInt(appendUint(appendUint(appendInt([]byte{recordsVersion}, 40), 3), 2), 7)
	records := cut.Tally{Rows: 4, Oldest: 100, Newest: 130}
	v, err := decodeAck(records.Append(old))
	if want := (ackValue{rank: 3, generation: 2, pieces: []ackPiece{{40, 7, records}}}); err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%+v %v, want %+v", v, err, want)
	}
	old[0] = valueVersion
	v, err = decodeAck(old)
	if want := (ackValue{rank: 3, generation: 2, pieces: []ackPiece{{40, 7, cut.Tally{}}}, uncounted: true}); err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%+v %v, want %+v", v, err, want)
	}
}
