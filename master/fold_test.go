package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// folder is a shard service with one partition. It notes which segments are folded.
type folder struct {
	ledger
	segs   []sources.Segment
	folds  []string
	gone   []serve.Deletion
	marked sources.Position
	soon   []serve.Deletion
}

func (f *folder) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{{ID: 3, Spec: &dataset.Spec{Source: &memsource.Spec{}}, Partitions: []serve.Partition{{Number: 5, Identity: "mem:x", Source: "mem:x"}}}}, nil
}

func (f *folder) RetainMarks(context.Context, uint32) ([]sources.Mark, error) {
	return []sources.Mark{{Partition: "mem:x", Position: f.marked}}, nil
}

func (f *folder) Segments(context.Context, uint32, int64, int) ([]sources.Segment, error) {
	return f.segs, nil
}

func (f *folder) Fold(_ context.Context, partition uint32, before int64, needed []int64) error {
	f.folds = append(f.folds, fmt.Sprintf("%d before %d but %v", partition, before, needed))
	return nil
}

func (f *folder) NoteDeleted(_ uint32, some []serve.Deletion) { f.soon = append(f.soon, some...) }
func (f *folder) SetDeleted(_ uint32, all []serve.Deletion)   { f.gone = all }

// forgets is a source that forgets all settled segments but segment 2.
type forgets struct {
	sources.Source
	below sources.Position
}

func (f *forgets) Forget(_ context.Context, _ sources.PartitionID, segs []sources.Segment, below sources.Position) (int64, []int64, error) {
	f.below = below
	return 4, []int64{2}, nil
}

// able is a part of a spec whose kind can forget or delete.
type able struct {
	dataset.Part
	forgets, deletes bool
}

func (a *able) Kind() sources.Kind {
	k := a.Part.Kind()
	k.Forgets, k.Deletes = a.forgets, a.deletes
	return k
}

func TestSegmentsThatASourceForgetsAreFoldedOnceAndTold(t *testing.T) {
	srv, src := &folder{marked: sources.Position{Segment: 4}}, &forgets{}
	f := &following{looked: true, listing: &listing{srv: srv, id: 3, alone: true, log: slog.New(slog.DiscardHandler), spec: &dataset.Spec{Source: &able{Part: &memsource.Spec{}, forgets: true}}}, src: src}
	segment := func(id int64, locator string) sources.Segment {
		return sources.Segment{ID: id, Start: 0, End: 10, Sealed: true, Locator: []byte(locator)}
	}
	srv.segs = []sources.Segment{segment(1, "a"), segment(2, "b"), segment(3, "c"), segment(4, "d")}
	if _, err := f.fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(srv.folds) != "[5 before 4 but [2]]" || src.below != srv.marked || len(srv.gone) != 0 {
		t.Errorf("folded are %v, the source was asked below %v, and the deletions told are %+v; want [5 before 4 but [2]] and none", srv.folds, src.below, srv.gone)
	}
	srv.segs = []sources.Segment{segment(1, ""), segment(2, "b"), segment(3, ""), segment(4, "d")}
	if _, err := f.fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(srv.folds) != 1 {
		t.Errorf("nothing is left to fold, but the folds are %v", srv.folds)
	}
	if fmt.Sprint(srv.gone) != fmt.Sprint([]serve.Deletion{{Source: "mem:x", Segment: 1, Low: 10}, {Source: "mem:x", Segment: 3, Low: 10}}) {
		t.Errorf("the deletions told are %+v, want segments 1 and 3", srv.gone)
	}
}

// deletes is a source that has deleted segments 1 and 2.
type deletes struct {
	sources.Source
	below sources.Position
	err   error
}

func (d *deletes) Delete(_ context.Context, _ sources.PartitionID, _ []sources.Segment, below sources.Position, _ func([]int64) (sources.Position, error)) (sources.Deletions, error) {
	d.below = below
	return sources.Deletions{Gone: []int64{1, 2}, More: true}, d.err
}

func TestWhatASourceDeletesIsToldAndAnErrorStopsNobody(t *testing.T) {
	for _, failed := range []error{nil, errors.New("no right")} {
		srv, src := &folder{marked: sources.Position{Segment: 4}}, &deletes{err: failed}
		f := &following{looked: true, listing: &listing{srv: srv, id: 3, alone: true, log: slog.New(slog.DiscardHandler), spec: &dataset.Spec{Source: &able{Part: &memsource.Spec{}, deletes: true}}}, src: src}
		for id := range int64(5) {
			srv.segs = append(srv.segs, sources.Segment{ID: id, End: 10 + id, Sealed: true, Locator: []byte("a")})
		}
		for range 2 {
			more, err := f.fold(t.Context())
			if err != nil || !more || src.below != srv.marked || len(srv.folds) > 0 {
				t.Errorf("fold returned %t and %v; the source was asked below %v, folded are %v", more, err, src.below, srv.folds)
			}
			if want := []serve.Deletion{{Source: "mem:x", Segment: 1, Low: 11}, {Source: "mem:x", Segment: 2, Low: 12}}; !slices.Equal(srv.gone, want) {
				t.Errorf("the deletions told are %+v, want %+v", srv.gone, want)
			}
		}
	}
}

// looks is a live source that forgets nothing before its heads were asked for.
type looks struct {
	*river
	looked bool
}

func (l *looks) Bounds(ctx context.Context, parts []sources.PartitionID) ([]sources.Bounds, error) {
	l.looked = true
	return l.river.Bounds(ctx, parts)
}

func (l *looks) Forget(context.Context, sources.PartitionID, []sources.Segment, sources.Position) (int64, []int64, error) {
	if !l.looked {
		return 0, nil, nil
	}
	return 4, nil, nil
}

// grown is a shard service with one partition that is read. It notes when it is folded.
type grown struct {
	noted
	busy   time.Time // until then so many segments wait that the listing asks for no more
	segs   []sources.Segment
	folded time.Time
	told   []serve.Deletion
}

func (g *grown) Datasets(context.Context) ([]serve.Dataset, error) {
	p := serve.Partition{Identity: "river:0", Source: "river:0", Growing: true, Head: 10}
	if time.Now().Before(g.busy) {
		p.Growing, p.Segments, p.Ahead = false, 300, 1
	}
	set := g.set
	set.Partitions = []serve.Partition{p}
	return []serve.Dataset{set}, nil
}

func (g *grown) RetainMarks(context.Context, uint32) ([]sources.Mark, error) {
	return []sources.Mark{{Partition: "river:0", Position: sources.Position{Segment: 4}}}, nil
}

func (g *grown) Segments(context.Context, uint32, int64, int) ([]sources.Segment, error) {
	return g.segs, nil
}

func (g *grown) Fold(context.Context, uint32, int64, []int64) error {
	g.folded = time.Now()
	g.segs = append([]sources.Segment{{ID: 3, Start: -30, End: 10, Sealed: true}}, g.segs[4:]...)
	return nil
}

func (g *grown) NoteDeleted(_ uint32, some []serve.Deletion) { g.told = append(g.told, some...) }
func (g *grown) SetDeleted(_ uint32, all []serve.Deletion)   { g.told = all }

// A master that lives for less than a minute folds segments too. It folds them as soon as the source
// has looked, however long that takes. A rewind knows of the folded segments at once.
func TestANewMasterFoldsOnceTheSourceHasLooked(t *testing.T) {
	spec, err := dataset.Parse([]byte("name: d\nfiles: {root: /data, end: never, remember: 1h}\ndecode: lines\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ busy, want time.Duration }{{0, 5 * time.Second}, {12 * time.Second, 15 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			src := &looks{river: newRiver(10)}
			began := time.Now()
			srv := &grown{noted: noted{set: serve.Dataset{ID: 3, Spec: spec}}, busy: began.Add(c.busy)}
			for id := range int64(5) {
				srv.segs = append(srv.segs, sources.Segment{ID: id, End: 10, Sealed: true, Locator: []byte("a")})
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.want+time.Second)
			defer cancel()
			l := &listing{cfg: Config{HeadsEvery: 5 * time.Second}, srv: srv, id: 3, alone: true, log: slog.New(slog.DiscardHandler), spec: spec}
			if err := l.follow(ctx, src); ctx.Err() == nil {
				t.Fatal(err)
			}
			if want := (serve.Deletion{Source: "river:0", Segment: 3, Low: 10}); len(srv.told) != 1 || srv.told[0] != want {
				t.Errorf("the deletions told at once are %+v, want %+v", srv.told, want)
			}
			if took := srv.folded.Sub(began); took != c.want {
				t.Errorf("the first fold came after %v, want %v", took, c.want)
			}
		})
	}
}

func TestWhatWasReadIsDeletedOnceAMinuteOrMoreOften(t *testing.T) {
	for retain, want := range map[string]time.Duration{"168h": time.Minute, "2m": 30 * time.Second, "1s": time.Second} {
		spec, err := dataset.Parse([]byte("name: d\nfiles: {root: /data, end: never, retain: "+retain+"}\ndecode: lines\n"), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := (&listing{spec: spec}).foldEvery(); got != want {
			t.Errorf("with retain: %s files are deleted every %v, want %v", retain, got, want)
		}
	}
}

// A new master has heard of leases up to the end of the listed segments. So its core plans nothing, and
// never says that it needs more segments. The listing must go on by itself.
func TestMoreIsListedWhenNothingIsLeftToPlan(t *testing.T) {
	spec, err := dataset.Parse([]byte("name: d\nfiles: {root: /data, end: never}\ndecode: lines\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	l := &listing{spec: spec, cfg: Config{AheadSegments: 256}}
	for _, c := range []struct {
		segments int
		ahead    int64
		want     bool
	}{{300, 0, true}, {300, 10, false}, {10, 10, true}} {
		if got := l.wanted(&serve.Partition{Segments: c.segments, Ahead: c.ahead}); got != c.want {
			t.Errorf("with %d segments and %d units to plan, more is wanted: %t, want %t", c.segments, c.ahead, got, c.want)
		}
	}
}

// deleted is a source that says, once it has looked, that segments 1 and 2 are gone.
type deleted struct {
	*looks
}

func (d deleted) Delete(context.Context, sources.PartitionID, []sources.Segment, sources.Position, func([]int64) (sources.Position, error)) (sources.Deletions, error) {
	if !d.looked {
		return sources.Deletions{}, nil
	}
	return sources.Deletions{Gone: []int64{1, 2}}, nil
}

// forgetful is a grown that can be told to forget the deletions.
type forgetful struct{ grown }

func (f *forgetful) ForgetDeleted(uint32) { f.told = nil }

// A dataset that has failed is not listed any more. Until the dataset is deleted, the master knows which
// of its files were deleted. It knows that also while a new listing has not looked yet.
func TestWhatIsDeletedIsKnownAfterTheListingHasEnded(t *testing.T) {
	spec, err := dataset.Parse([]byte("name: d\nfiles: {root: /data, end: never, retain: 1h}\ndecode: lines\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	srv := &forgetful{grown{noted: noted{set: serve.Dataset{ID: 3, Spec: spec, State: "failed"}}}}
	for id := range int64(5) {
		srv.segs = append(srv.segs, sources.Segment{ID: id, End: 10, Sealed: true, Locator: []byte("a")})
	}
	want := []serve.Deletion{{Source: "river:0", Segment: 1, Low: 10}, {Source: "river:0", Segment: 2, Low: 10}}
	for _, headsEvery := range []time.Duration{10 * time.Second, time.Hour} { // the second listing ends before it looks
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l := &listing{cfg: Config{HeadsEvery: headsEvery, FoldEvery: time.Second}, srv: srv, id: 3, alone: true, log: slog.New(slog.DiscardHandler), spec: spec}
			if err := l.follow(ctx, deleted{&looks{river: newRiver(10)}}); ctx.Err() == nil {
				t.Fatal(err)
			}
			if !slices.Equal(srv.told, want) {
				t.Errorf("after the listing has ended, the known deletions are %+v, want %+v", srv.told, want)
			}
		})
	}
	d := newDiscovery(Config{Logger: slog.New(slog.DiscardHandler)}, srv, nil)
	d.folds[3] = true
	if d.reconcile(t.Context(), []serve.Dataset{srv.set}); !slices.Equal(srv.told, want) {
		t.Errorf("the known deletions of a failed dataset are %+v, want %+v", srv.told, want)
	}
	ended := &listing{cancel: func() {}}
	d.live[inputID{3, 0}] = ended
	if d.reconcile(t.Context(), nil); !slices.Equal(srv.told, want) {
		t.Errorf("the known deletions of a deleted dataset whose listing still runs are %+v, want %+v", srv.told, want)
	}
	delete(d.live, inputID{3, 0})
	if d.reconcile(t.Context(), nil); len(srv.told) > 0 || len(d.folds) > 0 {
		t.Errorf("the known deletions of a deleted dataset are %+v, want none", srv.told)
	}
}

// asks is a source that asks whether it may delete segments 1 and 2. Meanwhile a rewind moves the mark.
type asks struct {
	sources.Source
	srv  *folder
	mark sources.Position
}

func (a *asks) Delete(_ context.Context, _ sources.PartitionID, _ []sources.Segment, _ sources.Position, due func([]int64) (sources.Position, error)) (found sources.Deletions, err error) {
	a.srv.marked = sources.Position{Segment: 2}
	a.mark, err = due([]int64{1, 2})
	return sources.Deletions{Gone: []int64{1}}, err
}

func TestWhatWillBeDeletedIsToldBeforeTheMarkIsReadAgain(t *testing.T) {
	srv := &folder{marked: sources.Position{Segment: 4}}
	src := &asks{srv: srv}
	f := &following{looked: true, listing: &listing{srv: srv, id: 3, alone: true, log: slog.New(slog.DiscardHandler), spec: &dataset.Spec{Source: &able{Part: &memsource.Spec{}, deletes: true}}}, src: src}
	for id := range int64(5) {
		srv.segs = append(srv.segs, sources.Segment{ID: id, End: 10, Sealed: true, Locator: []byte("a")})
	}
	for range 2 { // segment 2 is announced and then not deleted, so it is not reported afterwards
		srv.gone, srv.soon = nil, nil
		if _, err := f.fold(t.Context()); err != nil {
			t.Fatal(err)
		}
		one, two := serve.Deletion{Source: "mem:x", Segment: 1, Low: 10}, serve.Deletion{Source: "mem:x", Segment: 2, Low: 10}
		if !slices.Equal(srv.soon, []serve.Deletion{one, two}) || !slices.Equal(srv.gone, []serve.Deletion{one}) || src.mark != srv.marked {
			t.Errorf("announced are %+v, then reported %+v, below %v; want both, then segment 1, below the mark that is read last", srv.soon, srv.gone, src.mark)
		}
	}
}
