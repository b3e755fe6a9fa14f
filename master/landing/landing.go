package landing

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// Ledger is what landing needs of the shard service (serve.Server).
type Ledger interface {
	Changed() <-chan struct{}
	Datasets(context.Context) ([]serve.Dataset, error)
	Segments(ctx context.Context, partition uint32, after int64, max int) ([]sources.Segment, error)
	RetainMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error)
	Land(ctx context.Context, dataset uint32, t serve.Transaction) (already bool, records int64, err error)
	Landed(ctx context.Context, dataset uint32, transaction string) (records int64, landed bool, err error)
	Knows(ctx context.Context, dataset uint32, transaction string) (bool, error)
	EndLanding(ctx context.Context, dataset uint32) error
	Landings(ctx context.Context, dataset uint32) ([]serve.Remembered, error)
	Recall(ctx context.Context, dataset uint32, chunks map[sources.PartitionID][]sources.Segment, all []serve.Remembered) error
	Trim(ctx context.Context, partition uint32, before int64) error
	NoteDeleted(dataset uint32, found []serve.Deletion)
	ForgetTrimmed(ctx context.Context, dataset uint32) error
	Fail(ctx context.Context, dataset uint32, reason string) error
}

// Errors. Their text says what to do; kinds are found with errors.Is.
var (
	ErrNoDataset = errors.New("no such dataset")
	ErrInvalid   = errors.New("invalid")       // what came can never be taken as it is
	ErrRefused   = errors.New("refused")       // not now, nor later
	ErrNotReady  = errors.New("not ready yet") // try again
)

// Full is the error when the stored records of a dataset have reached max_bytes.
type Full struct {
	Dataset      string
	Stored, Most int64 // bytes
	Staged       int64 // bytes of Stored that are not committed, as far as that is known
	After        time.Duration
}

func (f *Full) Error() string {
	why := "records leave when they are trained on and no checkpoint needs them"
	if f.Staged > f.Stored/2 {
		why = fmt.Sprintf("%d bytes of them are staged and not committed. If they are of one transaction, it does not fit: commit smaller transactions, or raise landing.max_bytes. Chunks that nobody commits are deleted after landing.stage_ttl", f.Staged)
	}
	return fmt.Sprintf("dataset %s holds %d bytes of pushed records, and max_bytes is %d: %s. Try again in %v",
		f.Dataset, f.Stored, f.Most, why, f.After)
}

const (
	maxTransaction = 200 // bytes of an id
	cleanEvery     = 5 * time.Second
	orphansEvery   = 6 * time.Hour
	orphansAgain   = time.Minute // after an error
	putWithin      = time.Hour   // a file that is written for longer has no writer any more
)

// Service takes pushed records. Make it with New; Run deletes what is not needed.
type Service struct {
	srv   Ledger
	store storage.Store
	log   *slog.Logger
	now   func() time.Time
	began time.Time

	recalled map[uint32]bool // datasets, by id; only Run uses it
	every    time.Duration   // how often Run looks
	orphaned time.Duration   // how often it looks for what no dataset has
	again    time.Duration   // when it looks again after an error

	life    context.Context // ends with Run; commits that are under way use it
	end     context.CancelFunc
	running sync.WaitGroup // commits

	room *semaphore.Weighted // memory for what producers send

	gather int64        // bytes of lines that wait for their chunks to be full, of all bodies together
	bodies atomic.Int64 // of lines, that are being read

	mu        sync.Mutex      // guards what follows
	announced map[uint32]bool // partitions whose first deletion was announced
	known     map[string]*serve.Dataset
	fresh     <-chan struct{} // closed when known is old
	stored    map[string]*stored
}

// stored is what this process knows of the chunks of a stream. The stream is listed once. From
// then on stored is changed with each chunk that is staged, committed or deleted.
type stored struct {
	of string // the name of its dataset, as Run has seen it; guarded by Service.mu

	counting chan struct{} // is full while it is listed
	counted  chan struct{} // closed when it was

	bytes       int64
	staged      map[string]int64    // bytes of chunks that no commit has named, by key
	uncommitted int64               // the sum of staged
	sorted      bool                // staged has no chunk that was committed before this process began
	visible     map[uint64]struct{} // sums of the keys of committed chunks that bytes has
	deleted     map[uint32]int64    // of each partition: the chunks of segments up to this one are deleted
	swept       int64               // the hours up to this one were listed after their stage_ttl

	commits map[string]chan struct{} // those under way, by transaction: closed at their end

	named     map[string]int  // keys that commits under way name, and how many do
	condemned map[string]bool // keys to be deleted; true while somebody is at it
	doubtful  map[string]bool // keys whose deletion was begun and has no answer

	unwritten [][]byte // what is visible and not noted yet

	noting   sync.Mutex // guards what follows, and is taken before mu
	recalled bool       // what was visible before this process is known
	notes    []string   // keys of what is noted
}

// New makes a service that keeps chunks in a store.
func New(srv Ledger, store storage.Store, log *slog.Logger) *Service {
	s := &Service{srv: srv, store: store, log: log, now: time.Now, began: time.Now(), every: cleanEvery, orphaned: orphansEvery, again: orphansAgain, stored: map[string]*stored{}, announced: map[uint32]bool{}, recalled: map[uint32]bool{}, room: semaphore.NewWeighted(roomMost), gather: gatherMost}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// place is a dataset that records can be pushed to.
type place struct {
	*serve.Dataset
	dataset.Landing
	stream string
}

// ended says that no transaction follows.
func (p *place) ended() bool {
	for i := range p.Partitions() {
		if !p.Partitions()[i].Complete {
			return false
		}
	}
	return len(p.Partitions()) > 0
}

// Partitions returns the partitions of the pushed records that the shard service knows, without
// those of a backfill.
func (p *place) Partitions() []serve.Partition {
	if p.Spec.Backfill == nil {
		return p.Dataset.Partitions
	}
	var own []serve.Partition
	for _, q := range p.Dataset.Partitions {
		if !p.Spec.IsBackfill(string(q.Source)) {
			own = append(own, q)
		}
	}
	return own
}

// place finds a dataset by name.
func (s *Service) place(ctx context.Context, name string) (*place, error) {
	d, err := s.dataset(ctx, name)
	if err != nil {
		return nil, err
	}
	l, ok := d.Spec.Landing()
	if !ok {
		return nil, fmt.Errorf("%w: nothing can be pushed to dataset %s, whose records come from %s: push to a dataset with `landing:` in its spec", ErrRefused, name, d.Spec.Kind().Name)
	}
	stream, err := streamOf(ctx, s.store, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return &place{d, l, stream}, nil
}

func (s *Service) dataset(ctx context.Context, name string) (*serve.Dataset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.known == nil
	if !old {
		select {
		case <-s.fresh:
			old = true
		default:
		}
	}
	if old {
		fresh := s.srv.Changed() // before Datasets: what changes later is seen later
		all, err := s.srv.Datasets(ctx)
		if err != nil {
			return nil, err
		}
		s.known, s.fresh = map[string]*serve.Dataset{}, fresh
		for i := range all {
			s.known[all[i].Name] = &all[i]
		}
	}
	d := s.known[name]
	if d == nil {
		return nil, fmt.Errorf("%w: no dataset %q was applied: headrace dataset apply -f FILE", ErrNoDataset, name)
	}
	return d, nil
}

// ready waits until the shard service knows all partitions of a dataset.
func (s *Service) ready(ctx context.Context, name string) (*place, error) {
	const patience = 10 * time.Second
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := s.srv.Changed()
		p, err := s.place(ctx, name)
		if err != nil || p.listed() {
			return p, err
		}
		select {
		case <-changed:
		case <-wait.Done():
			return nil, errors.Join(ctx.Err(), fmt.Errorf("%w: the partitions of dataset %s are not listed yet; it is %s %s", ErrNotReady, name, p.State, p.Reason))
		}
	}
}

// account returns what is stored of a stream. A stream is counted once. s.mu is not held
// meanwhile, so that other streams go on. Errors are ErrNotReady.
func (s *Service) account(ctx context.Context, stream string) (*stored, error) {
	s.mu.Lock()
	a := s.stored[stream]
	if a == nil {
		a = &stored{counting: make(chan struct{}, 1), counted: make(chan struct{}), staged: map[string]int64{}, visible: map[uint64]struct{}{}, deleted: map[uint32]int64{}, commits: map[string]chan struct{}{},
			named: map[string]int{}, condemned: map[string]bool{}, doubtful: map[string]bool{}}
		s.stored[stream] = a
	}
	s.mu.Unlock()
	select {
	case <-a.counted:
		return a, nil
	default:
	}
	select {
	case <-a.counted:
	case a.counting <- struct{}{}:
		defer func() { <-a.counting }()
		if err := s.count(ctx, a, stream); err != nil {
			return nil, fmt.Errorf("%w: the stored chunks of %s are counted first: %w", ErrNotReady, stream, err)
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: the stored chunks of %s are still being counted: %w", ErrNotReady, stream, ctx.Err())
	}
	return a, nil
}

// count lists what lies in a stream, unless that was done. a.counting is held.
func (s *Service) count(ctx context.Context, a *stored, stream string) error {
	select {
	case <-a.counted:
		return nil
	default:
	}
	all, err := s.store.List(ctx, stream+"/", "", 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range all {
		a.bytes += o.Size
		a.stage(o.Key, o.Size)
	}
	close(a.counted)
	return nil
}

func (s *Service) add(a *stored, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.bytes += n
}

// cameTo notes a chunk that was staged.
func (s *Service) cameTo(a *stored, key string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.stage(key, size)
}

// stage notes a chunk that no commit has named. s.mu is held.
func (a *stored) stage(key string, size int64) {
	a.uncommitted += size - a.staged[key]
	a.staged[key] = size
}

// unstage forgets a staged chunk. s.mu is held.
func (a *stored) unstage(key string) {
	a.uncommitted -= a.staged[key]
	delete(a.staged, key)
}

// count notes that bytes has a committed chunk. s.mu is held.
func (a *stored) count(key string) { a.visible[sumOf(key)] = struct{}{} }

// counts says whether bytes has a committed chunk. s.mu is held.
func (a *stored) counts(key string) bool {
	_, is := a.visible[sumOf(key)]
	return is
}

var seed = maphash.MakeSeed()

// sumOf is kept instead of a key: there may be millions of chunks.
func sumOf(key string) uint64 { return maphash.String(seed, key) }

// landedIn notes chunks that are committed. Those that their writer has put there itself are
// counted now.
func (s *Service) landedIn(a *stored, all []chunk.Locator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range all {
		if _, known := a.staged[l.Key]; !known {
			a.bytes += l.Size
		}
		a.unstage(l.Key)
		a.count(l.Key)
	}
}

// Layout is how a dataset wants its records.
type Layout struct {
	dataset.Landing
	Ended  bool
	Stored int64 // bytes
	Upload Upload
}

// Upload is where writers may put chunks by themselves. URL is empty if they may not.
type Upload struct {
	URL, Stream string
	Now         time.Time
}

// upload is for a store that others can write to as well: a bucket.
func (s *Service) upload(p *place) Upload {
	if !s.outlives() {
		return Upload{}
	}
	return Upload{URL: strings.TrimSuffix(s.store.(fmt.Stringer).String(), "/"), Stream: p.stream, Now: s.now()}
}

// Layout returns how a dataset wants its records.
func (s *Service) Layout(ctx context.Context, name string) (Layout, error) {
	p, err := s.place(ctx, name)
	if err != nil {
		return Layout{}, err
	}
	a, err := s.account(ctx, p.stream)
	if err != nil {
		return Layout{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Layout{p.Landing, p.ended(), a.bytes, s.upload(p)}, nil
}

func checkTransaction(id string) error {
	if id == "" || len(id) > maxTransaction {
		return fmt.Errorf("%w: a transaction's id has 1 to %d bytes, and this one has %d", ErrInvalid, maxTransaction, len(id))
	}
	if !utf8.ValidString(id) { // notes are JSON, which would change it
		return fmt.Errorf("%w: the transaction's id %q is not UTF-8: use another id, as text or in hex", ErrInvalid, id)
	}
	return nil
}
