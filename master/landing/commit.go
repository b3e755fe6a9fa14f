package landing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// aheadMost is how far the time in a chunk's key may be ahead of the master's clock. The
// key says when the chunk may be deleted if it is not committed.
const aheadMost = 10 * time.Minute

// checking is how many chunks of a commit are looked at at a time. On S3 each look is two
// requests, one after the other.
const checking = 16

// mostChunks bounds a transaction. The names of so many chunks fit into a message of a pusher
// (internal/link) and into maxCommit.
const mostChunks = 250_000

// tooMany is the error of a transaction with more.
func tooMany(transaction string) error {
	return fmt.Errorf("%w: transaction %q has more than %d chunks: push larger chunks (landing.chunk), or several transactions", ErrInvalid, transaction, mostChunks)
}

// Committed answers a commit.
type Committed struct {
	Already bool  // it was visible before
	Records int64 // of the transaction
}

// Commit makes a transaction visible: all chunks that the locators name, or none. It
// returns when that is durable.
func (s *Service) Commit(ctx context.Context, name, transaction string, locators []string) (Committed, error) {
	return s.commitThen(ctx, name, transaction, locators, func(Committed, error) {})
}

// commitThen is Commit. It calls then when the commit has ended, also if its caller has gone
// before.
func (s *Service) commitThen(ctx context.Context, name, transaction string, locators []string, then func(Committed, error)) (Committed, error) {
	p, a, ended, err := s.begin(ctx, name, transaction, len(locators))
	if err != nil {
		then(Committed{}, err)
		return Committed{}, err
	}
	return s.apart(ctx, ended, func(ctx context.Context) (Committed, error) {
		err := s.recall(ctx, p, a)
		var done Committed
		if err == nil {
			done, err = s.commit(ctx, p, a, transaction, locators)
		}
		then(done, err)
		return done, err
	})
}

// begin waits until no other commit of the transaction is under way. ended ends this one.
func (s *Service) begin(ctx context.Context, name, transaction string, chunks int) (p *place, a *stored, ended func(), err error) {
	if err := checkTransaction(transaction); err != nil {
		return nil, nil, nil, err
	}
	if chunks > mostChunks {
		return nil, nil, nil, tooMany(transaction)
	}
	if p, err = s.ready(ctx, name); err != nil {
		return nil, nil, nil, err
	}
	if a, err = s.account(ctx, p.stream); err != nil {
		return nil, nil, nil, err
	}
	ended, err = s.turn(ctx, a, transaction)
	return p, a, ended, err
}

// alone runs one commit of a transaction at a time. The next commit of the transaction waits
// for it.
func (s *Service) alone(ctx context.Context, a *stored, transaction string, do func(context.Context) (Committed, error)) (Committed, error) {
	ended, err := s.turn(ctx, a, transaction)
	if err != nil {
		return Committed{}, err
	}
	return s.apart(ctx, ended, do)
}

// apart runs something that the caller has counted in s.running, and ends the count. If its
// caller goes away, it goes on: what it makes visible must be noted. It ends with the service.
func (s *Service) apart(ctx context.Context, ended func(), do func(context.Context) (Committed, error)) (Committed, error) {
	type result struct {
		Committed
		error
	}
	answer := make(chan result, 1)
	go func() {
		done, err := do(s.life)
		if err != nil && s.life.Err() != nil {
			err = serve.ErrStopped
		}
		ended()
		answer <- result{done, err}
	}()
	select {
	case r := <-answer:
		return r.Committed, r.error
	case <-ctx.Done():
		return Committed{}, ctx.Err()
	}
}

// recallFor is recall for a caller that may go away.
func (s *Service) recallFor(ctx context.Context, p *place, a *stored) error {
	s.mu.Lock()
	if s.life.Err() != nil {
		s.mu.Unlock()
		return serve.ErrStopped
	}
	s.running.Add(1)
	s.mu.Unlock()
	_, err := s.apart(ctx, s.running.Done, func(ctx context.Context) (Committed, error) {
		return Committed{}, s.recall(ctx, p, a)
	})
	return err
}

// turn waits until no commit of a transaction is under way, and begins one. ended ends it.
func (s *Service) turn(ctx context.Context, a *stored, transaction string) (ended func(), err error) {
	for {
		s.mu.Lock()
		before := a.commits[transaction]
		if before == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, serve.ErrStopped
	}
	mine := make(chan struct{})
	a.commits[transaction] = mine
	s.running.Add(1)
	return func() {
		s.mu.Lock()
		delete(a.commits, transaction)
		s.mu.Unlock()
		close(mine)
		s.running.Done()
	}, nil
}

// commit is Commit when no other commit of the transaction is under way. ctx ends with the
// service.
func (s *Service) commit(ctx context.Context, p *place, a *stored, transaction string, locators []string) (Committed, error) {
	// First, because the chunks of a visible transaction may be deleted already.
	if done, err := s.before(ctx, p, a, transaction); err != nil || done.Already {
		return done, err
	}
	return s.appear(ctx, p, a, transaction, locators, nil)
}

// before says whether a transaction was visible before.
func (s *Service) before(ctx context.Context, p *place, a *stored, transaction string) (Committed, error) {
	records, landed, err := s.srv.Landed(ctx, p.ID, transaction)
	if err != nil || landed {
		err = errors.Join(err, s.flush(ctx, p, a))
	}
	return Committed{landed, records}, err
}

// appear makes a transaction visible that was not: chunks that locators name, and after them
// those that were staged just now.
func (s *Service) appear(ctx context.Context, p *place, a *stored, transaction string, locators []string, staged []chunk.Locator) (Committed, error) {
	t := serve.Transaction{ID: transaction, Chunks: map[sources.PartitionID][]sources.Segment{}, Remember: p.Remember}
	named := map[string]bool{}
	var chunks []chunk.Locator
	for _, text := range slices.Concat(locators, texts(staged)) {
		l, key, err := chunk.ParseLocator(text)
		if err != nil {
			return Committed{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if named[l.Key] {
			return Committed{}, fmt.Errorf("%w: chunk %s is named twice", ErrInvalid, l.Key)
		}
		named[l.Key] = true
		chunks = append(chunks, l)
		if err := s.check(p, transaction, l, key); err != nil {
			return Committed{}, err
		}
		if at := key.At.Add(-aheadMost); len(chunks) == 1 || at.Before(t.Staged) {
			t.Staged = at
		}
		id := sources.PartitionID(key.PartitionID())
		t.Chunks[id] = append(t.Chunks[id], sources.Segment{End: int64(l.Records), Name: key.Name(), Locator: []byte(text)})
		t.Records += int64(l.Records)
	}
	unname, err := s.name(a, chunks)
	if err != nil {
		return Committed{}, err
	}
	sure := true // whether the chunks are visible is known
	defer func() {
		if sure { // else nobody may delete them; the next master knows
			unname()
		}
	}()
	if err := s.allThere(ctx, transaction, chunks[:len(locators)]); err != nil {
		return Committed{}, err
	}
	if err := s.fits(a, p, chunks); err != nil {
		return Committed{}, err
	}
	// Not cut short: if it lands, it must be noted. The shard service ends it when it stops.
	already, records, err := s.srv.Land(context.WithoutCancel(ctx), p.ID, t)
	switch {
	case errors.Is(err, serve.ErrRefused):
		return Committed{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case errors.Is(err, serve.ErrUnknown):
		return Committed{}, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	sure = err == nil
	if err == nil && !already {
		s.landedIn(a, chunks)
		s.note(a, &t)
	}
	if err == nil {
		err = s.flush(ctx, p, a)
	}
	return Committed{already, records}, err
}

// fits returns nil if max_bytes leaves room for the chunks that their writer has put on the
// storage itself. Chunks that were staged through the master were counted when they were staged.
func (s *Service) fits(a *stored, p *place, all []chunk.Locator) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum, more int64
	for _, l := range all {
		sum += l.Size
		if _, known := a.staged[l.Key]; !known {
			more += l.Size
		}
	}
	switch {
	case more > 0 && sum > p.MaxBytes:
		return fmt.Errorf("%w: a transaction of %d bytes never fits into dataset %s, whose landing.max_bytes is %d: raise max_bytes, or commit smaller transactions", ErrInvalid, sum, p.Name, p.MaxBytes)
	case more > 0 && a.bytes+more > p.MaxBytes:
		return a.full(p, a.bytes+more)
	}
	return nil
}

// Landed says whether a transaction is visible, and how many records it has.
func (s *Service) Landed(ctx context.Context, name, transaction string) (landed bool, records int64, err error) {
	if err := checkTransaction(transaction); err != nil {
		return false, 0, err
	}
	p, err := s.place(ctx, name)
	if err != nil {
		return false, 0, err
	}
	if !p.listed() {
		records, landed, err = s.srv.Landed(ctx, p.ID, transaction)
		return landed, records, err
	}
	a, err := s.account(ctx, p.stream)
	if err != nil {
		return false, 0, err
	}
	if err := s.recallFor(ctx, p, a); err != nil {
		return false, 0, err
	}
	records, landed, err = s.srv.Landed(ctx, p.ID, transaction)
	if err != nil || !landed {
		return false, 0, err
	}
	// Its commit may be between the store and the note.
	_, err = s.alone(ctx, a, transaction, func(ctx context.Context) (Committed, error) {
		return Committed{}, s.flush(ctx, p, a)
	})
	return landed, records, err
}

// check returns nil if the chunk's key says that it was staged for this transaction, within
// stage_ttl.
func (s *Service) check(p *place, transaction string, l chunk.Locator, key chunk.Key) error {
	switch {
	case key.Stream != p.stream:
		return fmt.Errorf("%w: chunk %s was staged for another dataset, or before dataset %s was deleted and applied again", ErrRefused, l.Key, p.Name)
	case key.Transaction != chunk.TransactionSum(transaction):
		return fmt.Errorf("%w: chunk %s was not staged for transaction %q", ErrRefused, l.Key, transaction)
	case key.Partition < 0 || key.Partition >= p.Landing.Partitions:
		return fmt.Errorf("%w: dataset %s has no partition %d", ErrInvalid, p.Name, key.Partition)
	}
	if ahead := key.At.Sub(s.now()); ahead > aheadMost {
		return fmt.Errorf("%w: chunk %s is named for %v from now: a writer takes the time of its keys from the master (now_ms of the layout)", ErrInvalid, l.Key, ahead.Round(time.Second))
	}
	if age := s.now().Sub(key.At); age > p.StageTTL {
		return fmt.Errorf("%w: transaction %q of dataset %s was staged %v ago, and landing.stage_ttl is %v. "+
			"It is not remembered as visible: it never was, or that is longer ago than landing.remember (%v). Find out which before you push its records again",
			ErrRefused, transaction, p.Name, age.Round(time.Second), p.StageTTL, p.Remember)
	}
	return nil
}

// allThere returns nil if each chunk is stored as its locator says.
func (s *Service) allThere(ctx context.Context, transaction string, chunks []chunk.Locator) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(checking)
	for _, l := range chunks {
		if ctx.Err() != nil {
			break // one of them is not there
		}
		g.Go(func() error { return s.there(ctx, transaction, l) })
	}
	return g.Wait()
}

// there returns nil if a chunk is stored as its locator says. An error of the storage says nothing
// of the transaction: the caller must try again.
func (s *Service) there(ctx context.Context, transaction string, l chunk.Locator) error {
	head, err := s.store.Get(ctx, l.Key, 0, chunk.HeaderSize)
	if err == nil {
		if err := l.Fits(head); err != nil {
			return fmt.Errorf("%w: chunk %s: %w", ErrRefused, l.Key, err)
		}
	}
	var o storage.Object
	if err == nil {
		o, err = s.store.Stat(ctx, l.Key)
	}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return fmt.Errorf("%w: chunk %s of transaction %q is not stored: stage it again", ErrRefused, l.Key, transaction)
	case err != nil:
		return fmt.Errorf("%w: chunk %s: %w", ErrNotReady, l.Key, err)
	case o.Size != l.Size:
		return fmt.Errorf("%w: chunk %s has %d bytes on storage, and its locator says %d: stage it again", ErrRefused, l.Key, o.Size, l.Size)
	}
	return nil
}

// End says that no transaction follows.
func (s *Service) End(ctx context.Context, name string) error {
	p, err := s.ready(ctx, name)
	if err != nil {
		return err
	}
	if !p.Ends {
		return fmt.Errorf("%w: dataset %s has landing.end: never; set `end: pushed` in its spec and apply it, if producers may end it", ErrRefused, name)
	}
	return s.srv.EndLanding(ctx, p.ID)
}
