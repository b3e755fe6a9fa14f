package shardsvc

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
	"pgregory.net/rapid"
)

// codecs has, by the letter of the key, a function that decodes a stored value and encodes it again.
var codecs = map[byte]func([]byte) (again []byte, err error){
	keyJob:       codec(decodeJob, (*jobValue).append),
	keyDataset:   codec(decodeDataset, (*datasetValue).append),
	keyPartition: codec(decodePartition, (*partitionValue).append),
	keySegment:   codec(decodeSegment, (*segmentValue).append),
	keySettled:   codec(decodeSettled, appendSettled),
	keyAck:       codec(decodeAck, (*ackValue).append),
	keyTries:     codec(decodeTries, (*triesValue).append),
	keyCut:       codec(decodeCutValue, (*cutValue).append),
	keyRemoved:   codec(decodeRemoved, (*removedValue).append),
	keyRank:      codec(decodeRank, (*rankValue).append),
	keyAgent:     codec(decodeAgent, (*agentValue).append),
	keyExcluded:  codec(decodeExclusion, (*exclusionValue).append),
}

func codec[V any](decode func([]byte) (V, error), encode func(*V, []byte) []byte) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) {
		v, err := decode(b)
		if err != nil {
			return nil, err
		}
		again := encode(&v, nil)
		w, err := decode(again)
		if err != nil || !reflect.DeepEqual(v, w) {
			panic("a value does not survive its own encoding")
		}
		return again, nil
	}
}

// appendSettled encodes a value as putSettled encodes a pass.
func appendSettled(v *settledValue, b []byte) []byte {
	b = appendSettledHead(b, &v.units, &v.records, v.low, len(v.ranges))
	for _, r := range v.ranges {
		b = appendSettledRange(b, r.start, r.end, r.kind)
	}
	return b
}

// storedPairs returns a store that has every kind of key.
func storedPairs(t testing.TB) map[string][]byte {
	w := newWorld(t, Config{Job: "j", Model: Private})
	w.step(&ApplyDataset{ID: 1, Name: "d", Spec: []byte("{}"), Options: Options{Passes: 2, Initial: 10, Min: 1, Max: 40, Target: Second, Unit: "bytes", GoOnAfterLoss: true}})
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "p"})
	w.step(&AddSegments{Partition: 1, Segments: []sources.Segment{{ID: 0, End: 30, Sealed: true, Locator: []byte("l"), Name: "n"}, {ID: 1, Start: -5, End: 9}}})
	w.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 5}}, Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1, Count: 2}}})
	w.step(&Message{Session: 2, Hello: &Hello{Agent: "a", Incarnation: 2}, Joins: []Join{{Worker: 1, Incarnation: 5, Generation: 1}},
		Held:     []Held{{Token: Token{1, 1, 1 << slotBits}, Worker: 1, Dataset: 1, Partition: 1, End: 10}},
		Acks:     []Ack{{Token: Token{1, 1, 1 << slotBits}, Prefix: 2, Step: 1}, {Token: Token{1, 1, 1 << slotBits}, Prefix: 4, Step: 2}},
		Steps:    []StepReport{{1, 2}},
		Failures: []ReadFailure{{Token: Token{1, 1, 1 << slotBits}, At: 6}}})
	w.step(&Truncated{Partition: 1, Start: 0, End: 9, Reason: "gone", When: 1})
	w.step(&Message{Session: 2, Calls: []CutCall{{Worker: 1, ID: 1, Ask: &CutAsk{Cut: 7, Step: 1, Path: "/ck"}}, {Worker: 1, ID: 2, Drop: &CutDrop{Cut: 8}}}})
	return w.store
}

// FuzzValues decodes arbitrary bytes, and encodes the value again if they are one. Neither
// may panic.
func FuzzValues(f *testing.F) {
	for k, v := range storedPairs(f) {
		f.Add(k[0], v)
	}
	f.Add(byte(keySettled), appendSettled(&settledValue{units: [3]int64{1, 2, 3}, low: line.Place{Segment: 1, Offset: 2}, ranges: []settledRange{{line.Place{Segment: 1, Offset: 4}, line.Place{Segment: 2, Offset: 0}, 1}}}, nil))
	f.Fuzz(func(t *testing.T, letter byte, b []byte) {
		if c := codecs[letter]; c != nil {
			_, _ = c(b)
		}
	})
}

// FuzzLoad loads a store of arbitrary pairs. The result is an error, or a core whose
// invariants hold; never a panic.
func FuzzLoad(f *testing.F) {
	for k, v := range storedPairs(f) {
		f.Add([]byte(k), v)
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		store := storedPairs(t)
		if len(k) > 0 {
			store[string(k)] = v
		}
		c := New(Config{Model: Private})
		for _, key := range sortedKeys(store) {
			if c.Load([]byte(key), store[key]) != nil {
				return
			}
		}
		if c.Loaded() != nil {
			return
		}
		var fx Effects
		c.Step(1, &Start{}, &fx)
		c.Flush(&fx)
		if err := c.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
	})
}

func sortedKeys(store map[string][]byte) []string { return slices.Sorted(maps.Keys(store)) }

func TestEveryStoredValueSurvivesItsEncoding(t *testing.T) {
	seen := map[byte]bool{}
	for k, v := range storedPairs(t) {
		again, err := codecs[k[0]](v)
		if err != nil || !bytes.Equal(again, v) {
			t.Errorf("%c: %x became %x (%v)", k[0], v, again, err)
		}
		seen[k[0]] = true
		if k[0] == keySettled { // putSettled wrote it, so the bytes above are those of both
			if s, err := decodeSettled(v); err != nil || len(s.ranges) == 0 {
				t.Errorf("storedPairs has a settled set without ranges: %+v (%v)", s, err)
			}
		}
		if _, err := codecs[k[0]](append([]byte{v[0] + 1}, v[1:]...)); err == nil {
			t.Errorf("%c: a value of a newer version was decoded without an error", k[0])
		}
		for n := range v {
			if _, err := codecs[k[0]](v[:n]); err == nil {
				t.Errorf("%c: the first %d of %d bytes were decoded without an error", k[0], n, len(v))
			}
		}
	}
	for letter := range codecs {
		if !seen[letter] {
			t.Errorf("storedPairs has no value of kind %c", letter)
		}
	}
}

// TestNoEventBreaksTheCore gives the core random events that no agent would send.
func TestNoEventBreaksTheCore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: t, cfg: Config{Job: "j", Model: rapid.SampledFrom([]string{"", Shared, Replicated, Private}).Draw(rt, "model"), History: 2}, now: Second, store: map[string][]byte{}}
		w.restart0(rt)
		commit(w.store, w.fx.Puts)
		var tokens []Token
		bodies := map[uint64]*cut.Cut{}
		small := rapid.Uint32Range(0, 3)
		number := rapid.OneOf(rapid.Int64Range(-2, 60), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64}))
		token := func() Token {
			if len(tokens) > 0 && rapid.IntRange(0, 5).Draw(rt, "known") > 0 {
				return rapid.SampledFrom(tokens).Draw(rt, "token")
			}
			return Token{small.Draw(rt, "epoch"), small.Draw(rt, "term"), rapid.Uint64().Draw(rt, "sequence")}
		}
		event := func() Event {
			switch rapid.IntRange(0, 14).Draw(rt, "event") {
			case 0:
				o := Options{Passes: int(small.Draw(rt, "passes")), Strict: rapid.Bool().Draw(rt, "strict"), Shuffle: rapid.Bool().Draw(rt, "shuffle"), Block: int64(small.Draw(rt, "block")),
					Initial: 7, Min: 1, Max: 30, Target: Second, Stall: Time(small.Draw(rt, "stall")) * Second, GoOnAfterLoss: rapid.Bool().Draw(rt, "continue")}
				id := small.Draw(rt, "ds")
				return &ApplyDataset{ID: id, Name: fmt.Sprint("d", id), Options: o}
			case 1:
				if small.Draw(rt, "really") > 0 {
					return &Tick{}
				}
				if rapid.Bool().Draw(rt, "released") {
					return &SourceReleased{small.Draw(rt, "ds")}
				}
				return &RemoveDataset{small.Draw(rt, "ds"), rapid.Bool().Draw(rt, "leftover")}
			case 2:
				return &SetPaused{small.Draw(rt, "ds"), rapid.Bool().Draw(rt, "paused")}
			case 3:
				return &AddPartition{Dataset: small.Draw(rt, "ds"), Number: w.core.NextPartition(), Identity: fmt.Sprint("p", w.core.NextPartition())}
			case 4:
				s := sources.Segment{ID: int64(small.Draw(rt, "seg")), Start: rapid.Int64Range(-5, 20).Draw(rt, "start"), Sealed: rapid.Bool().Draw(rt, "sealed")}
				s.End = s.Start + rapid.Int64Range(-1, 30).Draw(rt, "size")
				return &AddSegments{Partition: small.Draw(rt, "part"), Segments: []sources.Segment{s}, Complete: rapid.IntRange(0, 3).Draw(rt, "complete") == 0}
			case 5:
				return &PartitionsListed{small.Draw(rt, "ds")}
			case 6:
				return &Heads{[]Head{{small.Draw(rt, "part"), int64(small.Draw(rt, "seg")), number.Draw(rt, "end"), rapid.Bool().Draw(rt, "sealed"), rapid.Bool().Draw(rt, "fallen")}}}
			case 7:
				w.now += Time(rapid.IntRange(0, 3000).Draw(rt, "ms")) * Millisecond
				return &Tick{Blocked: Time(small.Draw(rt, "blocked")) * 100 * Millisecond}
			case 8:
				return &Lost{Session(small.Draw(rt, "session"))}
			case 9:
				return &Truncated{small.Draw(rt, "part"), int64(small.Draw(rt, "seg")), number.Draw(rt, "start"), number.Draw(rt, "end"), "gone", 1}
			}
			if ev := anyCutEvent(rt, w, bodies); ev != nil {
				return ev
			}
			n := small.Draw(rt, "worker")
			m := &Message{Session: Session(small.Draw(rt, "session"))}
			if rapid.IntRange(0, 4).Draw(rt, "hello") == 0 {
				m.Hello = &Hello{Agent: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "agent"), Incarnation: uint64(small.Draw(rt, "inc"))}
			}
			if rapid.Bool().Draw(rt, "joins") {
				m.Joins = []Join{{Worker: n, Rank: small.Draw(rt, "rank"), Incarnation: uint64(small.Draw(rt, "inc")), WorldSize: small.Draw(rt, "world"), Generation: small.Draw(rt, "gen"),
					Resume: Resume(small.Draw(rt, "resume"))}}
			}
			if rapid.Bool().Draw(rt, "held") {
				m.Held = []Held{{token(), n, small.Draw(rt, "ds"), small.Draw(rt, "part"), small.Draw(rt, "pass"), int64(small.Draw(rt, "seg")), number.Draw(rt, "start"), number.Draw(rt, "end"), number.Draw(rt, "frontier")}}
			}
			for range small.Draw(rt, "acks") {
				m.Acks = append(m.Acks, Ack{Token: token(), Prefix: number.Draw(rt, "prefix"), Step: number.Draw(rt, "step"),
					Told: rapid.Bool().Draw(rt, "told"), From: number.Draw(rt, "from"), Rows: number.Draw(rt, "rows"), Oldest: number.Draw(rt, "oldest"), Newest: number.Draw(rt, "newest")})
			}
			m.Steps = []StepReport{{n, number.Draw(rt, "step")}}
			switch small.Draw(rt, "more") {
			case 0:
				m.Answers = []StealAnswer{{token(), rapid.Bool().Draw(rt, "refused"), number.Draw(rt, "at")}}
			case 1:
				m.Releases = []Release{{Token: token(), Prefix: number.Draw(rt, "prefix")}}
			case 2:
				f := ReadFailure{Token: token(), At: number.Draw(rt, "at"), Permanent: rapid.IntRange(0, 9).Draw(rt, "permanent") == 0}
				if rapid.Bool().Draw(rt, "lost") {
					f.Lost = &LostRange{int64(small.Draw(rt, "seg")), number.Draw(rt, "start"), number.Draw(rt, "end")}
				}
				m.Failures = []ReadFailure{f}
			case 3:
				m.Leaves = []Leave{{n, LeaveReason(small.Draw(rt, "reason")), rapid.Bool().Draw(rt, "ended"), nil}}
			}
			if rapid.Bool().Draw(rt, "call") {
				m.Calls = []CutCall{anyCall(rt, n, bodies)}
			}
			if rapid.IntRange(0, 3).Draw(rt, "held yields") == 0 {
				m.Yields = []YieldsPaused{{n, uint64(small.Draw(rt, "held cut")), small.Draw(rt, "untracked") / 2}}
			}
			m.Status = []WorkerStatus{{Worker: n, Paused: rapid.Bool().Draw(rt, "paused")}}
			m.Requests = []LeaseRequest{{1, small.Draw(rt, "worker"), small.Draw(rt, "ds"), rapid.Float64().Draw(rt, "rate"), small.Draw(rt, "count"), rapid.Float64().Draw(rt, "old"), small.Draw(rt, "virtual")}}
			return m
		}
		rt.Repeat(map[string]func(*rapid.T){
			"event": func(*rapid.T) {
				w.fx.Reset()
				w.wake = w.core.Step(w.now, event(), &w.fx)
				w.core.Flush(&w.fx)
				commit(w.store, w.fx.Puts)
				for _, r := range w.fx.Replies {
					if r.Kind == ReplyGrant {
						tokens = append(tokens, r.Token)
					}
					if r.Kind == ReplyCut && r.Cut.Body != nil {
						bodies[r.Cut.Cut] = r.Cut.Body
					}
				}
			},
			"crash": func(*rapid.T) {
				if rapid.IntRange(0, 20).Draw(rt, "crash") == 0 {
					w.restart0(rt)
					commit(w.store, w.fx.Puts)
				}
			},
			"": func(rt *rapid.T) {
				if err := w.core.CheckInvariants(); err != nil {
					rt.Fatal(err)
				}
				w.core.Job()
				w.core.Agents()
				w.core.Workers()
				for _, d := range w.core.Datasets() {
					w.core.State(w.now, d.ID, 0, 10)
					w.core.Partitions(d.ID)
					w.core.Excluded(d.ID, 0, 10)
					w.core.RetainMarks(d.ID)
				}
			},
		})
	})
}

func anyID(rt *rapid.T) uint64 { return uint64(rapid.Uint32Range(0, 4).Draw(rt, "cut")) }

// anyCutEvent returns an event about a cut that a tool or the shell sends, or nil.
func anyCutEvent(rt *rapid.T, w *world, bodies map[uint64]*cut.Cut) Event {
	switch rapid.IntRange(0, 30).Draw(rt, "cut event") {
	case 0:
		return &ResolveCut{anyID(rt), rapid.Bool().Draw(rt, "found")}
	case 1:
		return &BindCut{anyID(rt), "/b"}
	case 2:
		return &DropCut{anyID(rt), "why"}
	case 3:
		k := bodies[anyID(rt)]
		w.core.PlanRewind(k, []Deletion{{Dataset: 1, Source: "files:1", Low: 9}})
		return &Rewind{k, "/r", uint64(rapid.Uint32Range(0, 9).Draw(rt, "after"))}
	}
	return nil
}

func anyCall(rt *rapid.T, worker uint32, bodies map[uint64]*cut.Cut) CutCall {
	k := CutCall{Worker: worker, ID: uint64(rapid.Uint32Range(0, 9).Draw(rt, "id"))}
	switch rapid.IntRange(0, 5).Draw(rt, "what") {
	case 0:
		k.Ask = &CutAsk{Cut: anyID(rt), Step: rapid.Int64Range(-1, 5).Draw(rt, "at"), Path: rapid.SampledFrom([]string{"", "/a"}).Draw(rt, "path"),
			Carried: rapid.Bool().Draw(rt, "carried"), Deadline: Time(rapid.Int64().Draw(rt, "deadline")), Exact: rapid.Bool().Draw(rt, "exact")}
	case 1:
		k.Bind = &CutBind{anyID(rt), "/c"}
	case 2:
		k.Drop = &CutDrop{anyID(rt), ""}
	case 4:
		k.Pause = &CutPause{anyID(rt), Time(rapid.Int64().Draw(rt, "deadline"))}
	case 3:
		k.Restore = &RestoreCall{Mode: RestoreMode(rapid.IntRange(0, 3).Draw(rt, "mode")), Cut: bodies[anyID(rt)], Path: "/d", Failed: []uint64{anyID(rt)}, After: uint64(rapid.Uint32Range(0, 9).Draw(rt, "after"))}
	}
	return k
}
