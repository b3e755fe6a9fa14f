package landing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	adapter "github.com/headrace/headrace/sources/landing"
)

// life runs a shard service on a store and a landing, as one life of a master does.
func life(t *testing.T, st *memstore.Store, chunks storage.Store, text string) (s *Service, said *bytes.Buffer) {
	t.Helper()
	s, said, _ = lifeOf(t, serve.Config{Store: st}, chunks, text)
	return s, said
}

func lifeOf(t *testing.T, cfg serve.Config, chunks storage.Store, text string) (s *Service, said *bytes.Buffer, calls headracev1.DatasetsServer) {
	t.Helper()
	dataset.Register(adapter.Kind)
	srv, err := serve.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r := registrar{}
	srv.Register(r)
	calls = r["headrace.v1.Datasets"].(headracev1.DatasetsServer)
	reply, err := calls.Apply(t.Context(), &headracev1.ApplyRequest{Yaml: text})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := streamOf(t.Context(), chunks, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	parts := []serve.NewPartition{{ID: sources.PartitionID(chunk.PartitionID(stream, 0))}, {ID: sources.PartitionID(chunk.PartitionID(stream, 1))}}
	if _, err := srv.AddPartitions(t.Context(), reply.Dataset.Id, parts, false); err != nil {
		t.Fatal(err)
	}
	said = &bytes.Buffer{}
	return New(srv, chunks, slog.New(slog.NewTextHandler(said, nil))), said, calls
}

// breaking is a store whose puts of notes fail while broken is true.
type breaking struct {
	bucket
	broken bool
}

func (b *breaking) Put(ctx context.Context, key string, data []byte) error {
	if b.broken && strings.HasPrefix(key, "visible/") {
		return errors.New("the bucket is busy")
	}
	return b.bucket.Put(ctx, key, data)
}

func folder(t *testing.T) *storage.Folder {
	t.Helper()
	f, err := storage.OpenFolder(filepath.Join(t.TempDir(), "chunks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// visible returns the chunks that the shard service knows, with their numbers.
func (s *Service) visible(t *testing.T) map[string]int64 {
	t.Helper()
	p, err := s.place(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, q := range p.Partitions() {
		segs, err := s.srv.Segments(t.Context(), q.Number, -1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range segs {
			all[string(g.Locator)] = g.ID
		}
	}
	return all
}

func (s *Service) pushed(t *testing.T, id string, partition int) (locator string) {
	t.Helper()
	locator = s.staged(t, id, partition, lines(id))
	if done, err := s.Commit(t.Context(), "clicks", id, []string{locator}); err != nil || done.Already || done.Records != 1 {
		t.Fatalf("%s: %+v, %v", id, done, err)
	}
	return locator
}

// A master that has lost its store takes from the bucket what was visible: the chunks with
// their numbers, the transactions, and nothing that was only staged.
func TestAMasterThatHasLostItsStoreTakesWhatWasVisibleFromTheBucket(t *testing.T) {
	chunks := bucket{folder(t)}
	s, _ := life(t, memstore.New(), chunks, spec)
	var all []string
	for i, id := range []string{"a", "b", "c", "d"} {
		all = append(all, s.pushed(t, id, i%2))
	}
	stray := s.staged(t, "stray", 0, lines("stray"))
	want := s.visible(t)
	if len(want) != 4 {
		t.Fatalf("%v", want)
	}

	for life2 := range 2 { // the second life reads the table that the first one wrote
		s, said := life(t, memstore.New(), chunks, spec)
		if landed, records, err := s.Landed(t.Context(), "clicks", "c"); err != nil || !landed || records != 1 {
			t.Fatalf("life %d: transaction c is visible: %v, with %d records (%v); want true, 1", life2, landed, records, err)
		}
		got := s.visible(t)
		if len(got) != 4 {
			t.Fatalf("life %d: the visible chunks are %v, want 4", life2, got)
		}
		for _, l := range all {
			if got[l] != want[l] {
				t.Errorf("chunk %s has number %d, want %d as before", l, got[l], want[l])
			}
		}
		if !strings.Contains(said.String(), "chunks=4 records=4 transactions=4") {
			t.Errorf("the log does not say what was recalled: %s", said)
		}
		if done, err := s.Commit(t.Context(), "clicks", "b", []string{all[1]}); err != nil || !done.Already {
			t.Errorf("the repeated commit of transaction b got %+v (%v), want already", done, err)
		}
	}

	// A staged chunk may still be committed. Its number follows the recalled ones.
	s, _ = life(t, memstore.New(), chunks, spec)
	if done, err := s.Commit(t.Context(), "clicks", "stray", []string{stray}); err != nil || done.Already {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := s.visible(t); len(got) != 5 || got[stray] != 2 {
		t.Errorf("%v", got)
	}
}

// Chunks that were deleted before the state was lost must not become visible again.
func TestDeletedChunksAreNotVisibleAgain(t *testing.T) {
	chunks := bucket{folder(t)}
	s, _ := life(t, memstore.New(), chunks, spec)
	var all []string
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, s.pushed(t, id, 0))
	}
	l, _, err := chunk.ParseLocator(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := chunks.Delete(t.Context(), l.Key); err != nil {
		t.Fatal(err)
	}
	s, _ = life(t, memstore.New(), chunks, spec)
	if err := s.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.visible(t); len(got) != 2 || got[all[1]] != 1 || got[all[2]] != 2 {
		t.Errorf("%v", got)
	}
	if landed, _, err := s.Landed(t.Context(), "clicks", "a"); err != nil || !landed {
		t.Errorf("transaction a, whose chunk was deleted, is forgotten (%v)", err)
	}
}

// No commit is answered before its note is in the bucket. If the note could not be written, a repeated
// commit writes it.
func TestACommitIsAnsweredWhenItIsNoted(t *testing.T) {
	chunks := &breaking{bucket{folder(t)}, false}
	s, _ := life(t, memstore.New(), chunks, spec)
	first := s.pushed(t, "first", 0)
	chunks.broken = true
	second := s.staged(t, "second", 0, lines("second"))
	for range 2 {
		if _, err := s.Commit(t.Context(), "clicks", "second", []string{second}); !errors.Is(err, ErrNotReady) {
			t.Fatalf("the note could not be written, but the commit got %v", err)
		}
	}
	if _, _, err := s.Landed(t.Context(), "clicks", "second"); !errors.Is(err, ErrNotReady) {
		t.Fatalf("the note could not be written, but the question whether it landed got %v", err)
	}
	chunks.broken = false
	if done, err := s.Commit(t.Context(), "clicks", "second", []string{second}); err != nil || !done.Already {
		t.Fatalf("%+v, %v", done, err)
	}
	s, _ = life(t, memstore.New(), chunks, spec)
	if err := s.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.visible(t); len(got) != 2 || got[first] != 0 || got[second] != 1 {
		t.Errorf("%v", got)
	}
}

// A master was killed between a commit and its note. The next one writes the note when it starts.
func TestAMasterNotesAtItsStartWhatItKnows(t *testing.T) {
	chunks, st := &breaking{bucket{folder(t)}, true}, memstore.New()
	s, _ := life(t, st, chunks, spec)
	only := s.staged(t, "only", 1, lines("only"))
	if _, err := s.Commit(t.Context(), "clicks", "only", []string{only}); !errors.Is(err, ErrNotReady) {
		t.Fatalf("the note could not be written, but the commit got %v", err)
	}
	chunks.broken = false
	again := New(s.srv, chunks, s.log)
	if err := again.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, _ = life(t, memstore.New(), chunks, spec)
	if landed, _, err := s.Landed(t.Context(), "clicks", "only"); err != nil || !landed {
		t.Errorf("after the state was lost, the transaction is visible: %v (%v), want true", landed, err)
	}
}

// A table replaces many notes, so the number of notes stays small. The notes are deleted with their dataset.
func TestATableReplacesManyNotes(t *testing.T) {
	chunks := bucket{folder(t)}
	s, _ := life(t, memstore.New(), chunks, strings.Replace(spec, "max_bytes: 1MiB", "max_bytes: 16MiB", 1))
	p, err := s.ready(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		s.pushed(t, string(rune('A'+i)), i%2)
	}
	a, err := s.account(t.Context(), p.stream)
	if err != nil {
		t.Fatal(err)
	}
	a.noting.Lock()
	err = s.table(t.Context(), p, a)
	a.noting.Unlock()
	notes, err2 := chunks.List(t.Context(), notesOf(p.stream), "", 0)
	if err := errors.Join(err, err2); err != nil || len(notes) != 1 {
		t.Fatalf("the bucket has %d notes (%v), want one table", len(notes), err)
	}
	s.pushed(t, "last", 0)
	s, _ = life(t, memstore.New(), chunks, spec)
	if err := s.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.visible(t); len(got) != 41 {
		t.Errorf("%d chunks are visible, want 41", len(got))
	}
	if err := (&Local{opened: chunks}).Release(t.Context(), "clicks"); err != nil {
		t.Fatal(err)
	}
	if left, err := chunks.List(t.Context(), "", "", 0); err != nil || len(left) != 0 {
		t.Errorf("after the release the bucket still has %v (%v)", left, err)
	}
}

// The deletion of a dataset is cut short after the store has forgotten it and before its stream is
// removed. A dataset of the same name that is applied then is empty.
func TestADatasetThatIsAppliedAgainAfterADeletionThatWasCutShortIsEmpty(t *testing.T) {
	for where, chunks := range map[string]storage.Store{"folder": folder(t), "bucket": bucket{folder(t)}} {
		t.Run(where, func(t *testing.T) {
			st := memstore.New()
			var answers atomic.Bool
			release := func(ctx context.Context, spec *dataset.Spec) error {
				if !answers.Load() {
					return errors.New("the storage does not answer")
				}
				return (&Local{opened: chunks}).Release(ctx, spec.Name)
			}
			s, _, calls := lifeOf(t, serve.Config{Store: st, Release: release}, chunks, spec)
			s.pushed(t, "a", 0)
			if err := s.clean(t.Context()); err != nil || len(s.stored) != 1 {
				t.Fatalf("%d streams are known, want one (%v)", len(s.stored), err)
			}
			if _, err := calls.Delete(t.Context(), &headracev1.DeleteRequest{Name: "clicks"}); err == nil {
				t.Fatal("the deletion was not cut short")
			}
			if err := s.clean(t.Context()); err != nil || len(s.stored) != 0 {
				t.Errorf("after the deletion %d streams are known, want none (%v)", len(s.stored), err)
			}
			if _, err := calls.Apply(t.Context(), &headracev1.ApplyRequest{Yaml: spec}); err == nil || !strings.Contains(err.Error(), "could not be removed yet") {
				t.Fatalf("while its records are there, the dataset is applied again: %v", err)
			}
			answers.Store(true)
			s, said, _ := lifeOf(t, serve.Config{Store: st, Release: release}, chunks, spec) // the next master
			if err := s.recallAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.visible(t); len(got) != 0 {
				t.Errorf("the new dataset has records of the deleted one: %v\n%s", got, said)
			}
			if landed, _, err := s.Landed(t.Context(), "clicks", "a"); err != nil || landed {
				t.Errorf("transaction a counts as visible in the new dataset: %v, %v", landed, err)
			}
		})
	}
}

// A folder of chunks is usually lost together with the store. If only the store is lost, the dataset
// stops, and its reason says what to do.
func TestAMasterThatHasLostItsStoreAndNotItsFolderSaysWhatIsLost(t *testing.T) {
	chunks := folder(t)
	s, _ := life(t, memstore.New(), chunks, spec)
	s.pushed(t, "a", 0)
	s.pushed(t, "b", 0)
	s.staged(t, "c", 0, lines("c"))
	state := func(s *Service) (string, string) {
		all, err := s.srv.Datasets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(all[0].State), all[0].Reason
	}
	st := memstore.New()
	s, _ = life(t, st, chunks, spec)
	if err := s.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is, why := state(s); is != "failed" || !strings.Contains(why, "push the others again") || !strings.Contains(why, "on_loss: continue") {
		t.Errorf("%s: %s", is, why)
	}

	// With on_loss: continue the dataset goes on, and the log says so.
	s, _ = life(t, memstore.New(), chunks, spec)
	s.pushed(t, "a", 0)
	s, said := life(t, memstore.New(), chunks, spec+"on_loss: continue\n")
	if err := s.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is, why := state(s); is == "failed" || !strings.Contains(said.String(), "push the others again") {
		t.Errorf("%s %s: %s", is, why, said)
	}

	// A chunk that was only staged was never visible: nothing is lost.
	other := folder(t)
	s, _ = life(t, memstore.New(), other, spec)
	s.staged(t, "c", 0, lines("c"))
	s, said = life(t, memstore.New(), other, spec)
	if err := s.recallAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is, why := state(s); is == "failed" || said.Len() > 0 {
		t.Errorf("%s %s: %s", is, why, said)
	}
}

// A repeated request is not answered before the note of its transaction is written either.
func TestARequestThatIsSentAgainIsAnsweredWhenItIsNoted(t *testing.T) {
	chunks := &breaking{bucket{folder(t)}, false}
	s, _ := life(t, memstore.New(), chunks, spec)
	s.pushed(t, "first", 0)
	chunks.broken = true
	for again := range 3 {
		if code, a := s.post(t, "/v1/datasets/clicks/records", "k", "a\nb"); code != http.StatusServiceUnavailable {
			t.Fatalf("no note can be written, but request %d got %d %+v, want 503", again, code, a)
		}
	}
	chunks.broken = false
	if code, a := s.post(t, "/v1/datasets/clicks/records", "k", "a\nb"); code != http.StatusOK || !a.Already || a.Records != 2 {
		t.Fatalf("the repeated request got %d %+v, want already, 2 records", code, a)
	}
	s, _ = life(t, memstore.New(), chunks, spec)
	if landed, records, err := s.Landed(t.Context(), "clicks", "k"); err != nil || !landed || records != 2 {
		t.Errorf("after the state was lost, the transaction is visible: %v with %d records (%v), want true, 2", landed, records, err)
	}
}

// leaving is a ledger whose caller goes away when its transaction has landed, before the caller knows
// that.
type leaving struct {
	Ledger
	leave func()
}

func (l *leaving) Land(ctx context.Context, dataset uint32, t serve.Transaction) (bool, int64, error) {
	already, records, err := l.Ledger.Land(context.WithoutCancel(ctx), dataset, t)
	l.leave()
	if err == nil {
		err = ctx.Err()
	}
	return already, records, err
}

func TestACommitWhoseCallerGoesAwayIsNoted(t *testing.T) {
	chunks := bucket{folder(t)}
	s, _ := life(t, memstore.New(), chunks, spec)
	ctx, leave := context.WithCancel(t.Context())
	s.srv = &leaving{s.srv, leave}
	locator := s.staged(t, "t", 0, lines("a"))
	if done, err := s.Commit(ctx, "clicks", "t", []string{locator}); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("%+v, %v", done, err)
	}
	if done, err := s.Commit(t.Context(), "clicks", "t", []string{locator}); err != nil || !done.Already || done.Records != 1 {
		t.Fatalf("the commit, sent again by another process, got %+v (%v), want already, 1 record", done, err)
	}
	p, err := s.place(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	if a := s.stored[p.stream]; len(a.staged) > 0 {
		t.Errorf("the committed chunks still count as staged: %v", a.staged)
	}
	s, _ = life(t, memstore.New(), chunks, spec)
	if landed, _, err := s.Landed(t.Context(), "clicks", "t"); err != nil || !landed || len(s.visible(t)) != 1 {
		t.Errorf("after the state was lost, the transaction is visible: %v (%v), with the chunks %v", landed, err, s.visible(t))
	}
}
