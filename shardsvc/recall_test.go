package shardsvc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

// emptied is a master that has lost its state, with the dataset applied again.
func emptied(t *testing.T, model string, goOn bool) *world {
	w := newWorld(t, Config{Job: "j", Model: model})
	w.step(&ApplyDataset{ID: 1, Name: "pushed", Options: Options{Passes: 1, Initial: 10, Min: 1, Max: 10, Target: Second, Unit: sources.Records, GoOnAfterLoss: goOn, Pushed: true}})
	return w
}

// recalls adds the chunks [from, to) under the numbers that the notes in the bucket give them.
func (w *world) recalls(from, to int) {
	ev := &AddSegments{Partition: 1}
	for i := from; i < to; i++ {
		s := chunk(fmt.Sprint("c", i), 10)
		s.ID, s.Sealed = int64(i), true
		ev.Segments = append(ev.Segments, s)
	}
	w.step(ev)
	for i := range to {
		w.step(&Land{Dataset: 1, Transaction: fmt.Sprint("t", i), Records: 10, When: int64(i)})
	}
}

// A master that has lost its state finds the visible chunks in a bucket, before or after it
// restores a checkpoint. The chunks that are not in the checkpoint are granted, each of them
// once. That holds if the checkpoint's table of segments was trimmed, too.
func TestPushedRecordsThatARestoredCutDoesNotNameFollowIt(t *testing.T) {
	for _, model := range []string{Replicated, Private} {
		for _, c := range []struct {
			name  string
			read  int // leases that were trained on before the cut
			trims bool
			want  string
		}{
			{"before any was read", 0, false, "0=c0:[0,10) 1=c1:[0,10) 2=c2:[0,10) 3=c3:[0,10) 4=c4:[0,10) 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)"},
			{"after some", 3, false, "0=c0:[0,10) 1=c1:[0,10) 2=c2:[0,10) 3=c3:[0,10) 4=c4:[0,10) 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)"},
			{"after a trim", 4, true, "2=c2:[-20,10)- 3=c3:[0,10) 4=c4:[0,10) 5=c5:[0,10) 6=c6:[0,10) 7=c7:[0,10)"},
		} {
			for _, first := range []string{"recall", "restore"} {
				t.Run(model+" "+c.name+" "+first+" first", func(t *testing.T) {
					w := pushedWorld(t, model)
					w.lands(0, 8, 10)
					from, step := 0, int64(1)
					switch {
					case c.trims:
						w.trains(3, 1)
						w.saves(76, 1)
						w.step(&Trim{Partition: 1, Before: 3})
						from, step = 3, 2
						w.trains(c.read-3, step)
					case c.read > 0:
						w.trains(c.read, step)
					default:
						w.step(&Message{Session: 1, Steps: []StepReport{{Worker: 1, Step: step}}})
					}
					body := w.saves(77, step)

					w = emptied(t, model, false)
					if first == "recall" {
						w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "landing:x/0"})
						w.recalls(from, 8)
					}
					w.joins(0)
					if code, reason := w.restored(body); code != CutOK {
						t.Fatal(code, reason)
					}
					no := w.core.Partitions(1)
					if first == "restore" {
						if len(no) == 0 {
							w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "landing:x/0"})
						}
						w.recalls(from, 8)
						no = w.core.Partitions(1)
					}
					var got []string
					for _, s := range w.core.Segments(no[0].Number, -1, 0) {
						got = append(got, fmt.Sprintf("%d=%s:[%d,%d)%s", s.ID, s.Name, s.Start, s.End, map[bool]string{true: "-"}[len(s.Locator) == 0]))
					}
					if len(no) != 1 || strings.Join(got, " ") != c.want {
						t.Fatalf("%d partitions, %s; want %s", len(no), strings.Join(got, " "), c.want)
					}
					rest := w.rest()
					for i := range 8 {
						if n := len(rest[fmt.Sprint("c", i)]); (n == 1) != (i >= c.read) {
							t.Errorf("chunk c%d is granted %d times: %v", i, n, rest)
						}
					}
				})
			}
		}
	}
}

// Chunks that landed on an empty master before the restore may have the numbers that the
// checkpoint gives to other chunks. They get higher numbers and are granted after the cut.
func TestWhatLandedBeforeARestoreOnAnEmptyMasterFollowsTheCut(t *testing.T) {
	w := pushedWorld(t, Replicated)
	w.lands(0, 4, 10)
	w.trains(4, 1)
	body := w.saves(77, 1)
	w = emptied(t, Replicated, false)
	w.step(&AddPartition{Dataset: 1, Number: 1, Identity: "landing:x/0"})
	w.lands(7, 2, 10) // get the numbers 0 and 1, which c0 and c1 have in the checkpoint
	w.joins(0)
	if code, reason := w.restored(body); code != CutOK {
		t.Fatal(code, reason)
	}
	if got := fmt.Sprint(w.rest()); got != "map[c7:[[0 10]] c8:[[0 10]]]" {
		t.Errorf("granted: %s", got)
	}
}

// The landing from which a checkpoint was trained is lost. It does not matter whether the
// restore or the partitions of the new landing come first. With on_loss: stop, the dataset
// stops at once. With continue, the records of the cut stay settled, and new records are
// granted. A hole of the cut is granted too, and its reader finds that the records are lost.
func TestTheLandingOfARestoredCutIsLost(t *testing.T) {
	w := pushedWorld(t, Replicated)
	w.lands(0, 4, 10)
	w.grants(1) // a hole in the cut
	w.trains(1, 1)
	body := w.saves(77, 1)
	for _, first := range []string{"partitions", "restore"} {
		for _, goOn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s first, go on %v", first, goOn), func(t *testing.T) {
				w := emptied(t, Replicated, goOn)
				add := func() {
					w.step(&AddPartition{Dataset: 1, Number: w.core.NextPartition(), Identity: "landing:y/0"})
				}
				if first == "partitions" {
					add()
				}
				w.joins(0)
				code, reason := w.restored(body)
				told := false
				if first == "restore" {
					add()
				}
				for _, r := range w.fx.Reports {
					told = told || r.Kind == ReportPushedLost
				}
				d, _ := w.core.Dataset(1)
				switch {
				case goOn && (code != CutOK || d.State == "failed" || !told):
					t.Fatal(code, reason, d.State, d.Reason, told)
				case !goOn && first == "partitions" && (code != CutRefused || !strings.Contains(reason, "must be pushed again")):
					t.Fatal(code, reason)
				case !goOn && first == "restore" && (d.State != "failed" || !strings.Contains(d.Reason, "must be pushed again")):
					t.Fatal(code, reason, d.State, d.Reason)
				}
				if !goOn {
					return
				}
				for _, p := range w.core.Partitions(1) {
					if p.Complete != (p.Identity == "landing:x/0") {
						t.Errorf("%+v", p)
					}
					if p.Identity == "landing:y/0" {
						w.step(&Land{Dataset: 1, Transaction: "new", Records: 10, When: 1, Parts: []LandPart{{p.Number, []sources.Segment{chunk("new", 10)}}}})
					}
				}
				if got := w.rest(); len(got["new"]) != 1 || len(got["c0"]) != 1 || len(got["c1"])+len(got["c2"]) > 0 {
					t.Errorf("granted: %v", got)
				}
			})
		}
	}
}
