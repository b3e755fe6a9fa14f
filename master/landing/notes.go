package landing

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// Only the master's store says which chunks are visible. If it is lost with the state folder,
// a bucket of chunks may still be there. So each commit is noted in the bucket before it is
// answered, and a master whose store knows nothing of a stream takes its notes.
//
// A note has a line for each transaction and one for each of its chunks. Commits that wait at
// the same time share one. After noteMost notes, and when a master starts, one table of all
// that the store knows replaces them.
//
// A folder of chunks lies in the state folder and is mostly lost with it. It has one note
// without content, which only says that something was visible. If the store does not know of
// it, the dataset is stopped and the reason says what to do.

// noteMost is how many notes there may be before a table replaces them.
const noteMost = 1000

func notesOf(stream string) string { return "visible/" + stream + "/" }

// noted is a line of a note: a transaction, or a visible chunk.
type noted struct {
	Transaction string `json:"transaction,omitempty"`
	Records     int64  `json:"records,omitempty"`
	When        int64  `json:"when,omitempty"` // ms since 1970
	Segment     int64  `json:"segment,omitempty"`
	Locator     string `json:"locator,omitempty"`
}

// outlives says whether chunks stay when the state folder is lost.
func (s *Service) outlives() bool {
	b, ok := s.store.(fmt.Stringer)
	return ok && strings.HasPrefix(b.String(), "s3://")
}

// listed says whether the shard service knows all partitions of the stream.
func (p *place) listed() bool {
	own, n := strings.TrimSuffix(chunk.PartitionID(p.stream, 0), "0"), 0
	for _, q := range p.Partitions() {
		if strings.HasPrefix(string(q.Source), own) {
			n++
		}
	}
	return n >= p.Landing.Partitions
}

// recall does its work once for each stream, before a call about the stream is answered and before
// anything of it is deleted. If the store does not know which chunks were visible, recall takes
// that from the notes.
func (s *Service) recall(ctx context.Context, p *place, a *stored) error {
	a.noting.Lock()
	defer a.noting.Unlock()
	if a.recalled {
		return nil
	}
	landings, err := s.srv.Landings(ctx, p.ID)
	if err != nil {
		return err
	}
	notes, err := s.store.List(ctx, notesOf(p.stream), "", 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	for _, n := range notes {
		a.notes = append(a.notes, n.Key)
	}
	if len(landings) == 0 && len(notes) > 0 {
		if err := s.without(ctx, p, a); err != nil {
			return err
		}
	}
	if len(landings) > 0 || len(a.notes) > 0 {
		if err := s.table(ctx, p, a); err != nil {
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
	}
	a.recalled = true
	return nil
}

// without goes on after the master has lost the store, which alone knew what was visible.
func (s *Service) without(ctx context.Context, p *place, a *stored) error {
	if s.outlives() {
		return s.landAgain(ctx, p, a)
	}
	const hint = "the master has lost its state, and only that said which pushed records were visible. A checkpoint brings back those that it has and no others: push the others again"
	if p.Spec.OnLoss == "continue" {
		s.log.Warn(hint, "dataset", p.Name)
	} else {
		reason := hint + ". To go on, set `on_loss: continue` in the spec and apply it; or bring the state folder back"
		if err := s.srv.Fail(ctx, p.ID, reason); err != nil {
			return err
		}
	}
	err := s.store.Delete(ctx, a.notes...) // without its notes, the loss is not reported again
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	a.notes = nil
	return nil
}

// landAgain makes visible what the notes name.
func (s *Service) landAgain(ctx context.Context, p *place, a *stored) error {
	stored, err := s.store.List(ctx, p.stream+"/", "", 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	there := map[string]bool{}
	for _, o := range stored {
		there[o.Key] = true
	}
	chunks := map[sources.PartitionID][]sources.Segment{}
	remembered := map[string]serve.Remembered{}
	for _, name := range a.notes {
		text, err := s.store.Get(ctx, name, 0, -1)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
		for line := range bytes.Lines(text) {
			var n noted
			if err := json.Unmarshal(line, &n); err != nil {
				return fmt.Errorf("%w: the note %s of what is visible: %w", ErrRefused, name, err)
			}
			if n.Locator == "" {
				if known, ok := remembered[n.Transaction]; !ok || n.When < known.When {
					remembered[n.Transaction] = serve.Remembered{ID: n.Transaction, Records: n.Records, When: n.When}
				}
				continue
			}
			l, key, err := chunk.ParseLocator(n.Locator)
			if err != nil {
				return fmt.Errorf("%w: the note %s of what is visible: %w", ErrRefused, name, err)
			}
			id := sources.PartitionID(key.PartitionID())
			chunks[id] = append(chunks[id], sources.Segment{ID: n.Segment, End: int64(l.Records), Sealed: true, Name: key.Name(), Locator: []byte(n.Locator)})
		}
	}
	visible, records := 0, int64(0)
	for id, all := range chunks {
		slices.SortFunc(all, func(a, b sources.Segment) int { return cmp.Compare(a.ID, b.ID) })
		all = slices.CompactFunc(all, func(a, b sources.Segment) bool { return a.ID == b.ID })
		for len(all) > 0 { // the first ones were trained on, and deleted
			if l, _, _ := chunk.ParseLocator(string(all[0].Locator)); there[l.Key] {
				break
			}
			all = all[1:]
		}
		chunks[id] = all
		visible += len(all)
		for _, g := range all {
			records += g.End
		}
	}
	landings := slices.SortedFunc(maps.Values(remembered), func(a, b serve.Remembered) int {
		return cmp.Or(cmp.Compare(a.When, b.When), strings.Compare(a.ID, b.ID))
	})
	if err := s.srv.Recall(ctx, p.ID, chunks, landings); err != nil {
		return err
	}
	s.log.Warn("the master has lost its state; pushed records that were visible are taken from their notes in the bucket, and are visible again",
		"dataset", p.Name, "chunks", visible, "records", records, "transactions", len(landings))
	return nil
}

// table replaces all notes by one that has what the store knows. a.noting is held.
func (s *Service) table(ctx context.Context, p *place, a *stored) error {
	var text bytes.Buffer
	if s.outlives() {
		landings, err := s.srv.Landings(ctx, p.ID)
		if err != nil {
			return err
		}
		for _, t := range landings {
			text.Write(noted{Transaction: t.ID, Records: t.Records, When: t.When}.line())
		}
		for _, q := range p.Partitions() {
			segs, err := s.srv.Segments(ctx, q.Number, -1, 0)
			if err != nil {
				return err
			}
			for _, g := range segs {
				if len(g.Locator) > 0 {
					text.Write(noted{Segment: g.ID, Locator: string(g.Locator)}.line())
				}
			}
		}
	}
	name := notesOf(p.stream) + "table-" + strings.ToLower(rand.Text()[:16])
	if err := s.store.Put(ctx, name, text.Bytes()); err != nil {
		return err
	}
	old := a.notes
	a.notes = []string{name}
	return s.store.Delete(ctx, old...)
}

func (n noted) line() []byte {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // texts and numbers
	}
	return append(text, '\n')
}

// note keeps what a commit has made visible, until flush has written it.
func (s *Service) note(a *stored, t *serve.Transaction) {
	text := noted{Transaction: t.ID, Records: t.Records, When: s.now().UnixMilli()}.line()
	for _, id := range slices.Sorted(maps.Keys(t.Chunks)) {
		for _, g := range t.Chunks[id] {
			text = append(text, noted{Segment: g.ID, Locator: string(g.Locator)}.line()...)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.unwritten = append(a.unwritten, text)
}

// flush writes what is visible and not noted yet. No commit is answered before.
func (s *Service) flush(ctx context.Context, p *place, a *stored) error {
	a.noting.Lock()
	defer a.noting.Unlock()
	s.mu.Lock()
	some := slices.Clone(a.unwritten)
	s.mu.Unlock()
	if len(some) == 0 {
		return nil
	}
	switch {
	case s.outlives():
		name := fmt.Sprintf("%s%d-%s", notesOf(p.stream), s.now().UnixMilli(), strings.ToLower(rand.Text()[:16]))
		if err := s.store.Put(ctx, name, bytes.Join(some, nil)); err != nil {
			return fmt.Errorf("%w: the transaction is visible, and is not noted yet: %w", ErrNotReady, err)
		}
		a.notes = append(a.notes, name)
	case len(a.notes) == 0:
		if err := s.table(ctx, p, a); err != nil {
			return fmt.Errorf("%w: the transaction is visible, and is not noted yet: %w", ErrNotReady, err)
		}
	}
	s.mu.Lock()
	a.unwritten = slices.Delete(a.unwritten, 0, len(some))
	s.mu.Unlock()
	if len(a.notes) > noteMost {
		s.warn(ctx, s.table(ctx, p, a))
	}
	return nil
}
