package pulsar

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/pulsarwire"
	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	askAtOnce   = 8 // requests to the admin API at a time
	asideAtOnce = 2 // of those in a live topic that no reader waits for: they must not slow the broker's messages down
)

// Source reads the topics of one dataset. Its goroutines end with Close.
type Source struct {
	brokers.List[partition]
	o     Options
	admin *admin
	clock wallclock.Clock // for the forecast of deletion

	ending  sync.WaitGroup // Readers that are being opened or closed
	asks    chan struct{}  // taken by a cursor while it asks the admin API why nothing comes
	cursors atomic.Int64   // that are open
	tries   tries          // entries that could not be read

	lookbacks lookbacks

	partBytes atomic.Int64 // of unfinished messages in chunks that Readers have
	partRoom  int64        // above it, some of them are dropped

	mu     sync.Mutex                   // guards what follows
	client client.Client                // made when it is needed for the first time
	wire   *pulsarwire.Client           // made when something is read for the first time
	known  map[string]int64             // when each partition's topic was made, as first listed; by its full name
	fixed  map[sources.PartitionID]bool // the end of the partition was found
	listed map[sources.PartitionID][]sources.Segment
	idle   []*reader // kept for later ranges
	sizes  map[partition]sizes
	sights map[partition]sight

	policies map[string]policy // by topic
	stamps   map[partition]stamp
}

var (
	_ sources.Source = (*Source)(nil)
	_ sources.Joiner = (*Source)(nil)
	_ sources.Namer  = (*Source)(nil)
)

// Open makes a source. It does not connect yet.
func Open(o Options) (*Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	a, err := newAdmin(&o)
	if err != nil {
		return nil, err
	}
	asks := askAtOnce
	if o.live() {
		asks = asideAtOnce
	}
	s := &Source{o: o, admin: a, clock: wallclock.System(), asks: make(chan struct{}, asks),
		tries: tries{silence: silentFor, behind: behindWithin}, partRoom: max(partsBytes, 2*o.MaxRecord),
		known:  map[string]int64{},
		fixed:  map[sources.PartitionID]bool{},
		listed: map[sources.PartitionID][]sources.Segment{},
		sizes:  map[partition]sizes{}, sights: map[partition]sight{}, policies: map[string]policy{}, stamps: map[partition]stamp{}}
	for _, g := range o.Known {
		p, _, err := parseLocator(g.Locator)
		if err != nil {
			return nil, err
		}
		s.listed[p.id()] = append(s.listed[p.id()], g)
		s.known[p.topic] = p.created
	}
	return s, nil
}

// Close ends connections and Readers. Cursors fail from now on.
func (s *Source) Close() error {
	s.MarkClosed()
	if s.o.login != nil {
		s.o.login.close()
	}
	s.mu.Lock()
	c, w := s.client, s.wire
	s.idle, s.client, s.wire = nil, nil, nil
	s.mu.Unlock()
	if w != nil {
		w.Close() // its Readers end with it
	}
	s.ending.Wait()
	if c != nil {
		c.Close()
	}
	s.admin.close()
	return nil
}

// Partitions lists the partitions of all topics, in the order of the spec and by number. If
// a topic was deleted and made again, it returns a *sources.Changed error: positions of the
// old topic mean nothing in the new one.
func (s *Source) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([][]partition, len(s.o.Topics))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(askAtOnce)
	for i, topic := range s.o.Topics {
		g.Go(func() (err error) {
			all[i], err = s.partitionsOf(gctx, topic)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var ids []sources.PartitionID
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, parts := range all {
		for _, p := range parts {
			if old, ok := s.known[p.topic]; ok && old != p.created {
				was := partition{p.topic, old}
				return nil, madeAgain(was, was.String(), s.wholeOf(was), p)
			}
		}
	}
	for _, parts := range all {
		for _, p := range parts {
			s.known[p.topic] = p.created
			s.Put(p.id(), p)
			ids = append(ids, p.id())
		}
	}
	return ids, nil
}

// namesOf asks for the names of a topic's partitions, in order of their numbers. A topic
// without partitions is its only one.
func (s *Source) namesOf(ctx context.Context, topic string) ([]string, error) {
	var meta struct{ Partitions int }
	if err := s.admin.get(ctx, adminPath(topic)+"/partitions", &meta); err != nil {
		return nil, err
	}
	if meta.Partitions == 0 {
		return []string{topic}, nil
	}
	var names []string
	for n := range meta.Partitions {
		names = append(names, fmt.Sprintf("%s-partition-%d", topic, n))
	}
	return names, nil
}

// partitionsOf asks for the partitions of one topic, in order of their numbers.
func (s *Source) partitionsOf(ctx context.Context, topic string) ([]partition, error) {
	names, err := s.namesOf(ctx, topic)
	if isNotFound(err) {
		if created, was := s.knownAs(topic); was {
			p := partition{topic, created}
			return nil, deleted(p.String(), s.wholeOfLocked(p))
		}
		return nil, fmt.Errorf("topic %s is not there on %s: create it, or correct pulsar.topic", topic, s.admin.where())
	}
	if err != nil {
		return nil, err
	}
	parts := make([]partition, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(askAtOnce)
	for i, name := range names {
		// A topic is made and deleted as a whole. So it asks only for the first partition, and
		// for those that are new.
		if created, was := s.asListed(name); was && i > 0 {
			parts[i] = partition{name, created}
			continue
		}
		g.Go(func() error {
			created, err := s.madeAt(gctx, name)
			if isNotFound(err) { // it was added a moment ago
				err = temporary(fmt.Errorf("topic %s is not known to the broker yet", name))
			}
			parts[i] = partition{name, created}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return parts, nil
}

// madeAt asks when a partition, or a topic without partitions, was made. It does not ask for
// a topic with partitions: its broker would ask itself about each of them over HTTP, and on
// a busy broker that takes too long.
func (s *Source) madeAt(ctx context.Context, name string) (int64, error) {
	var info infoOf
	if err := s.admin.get(ctx, adminPath(name)+"/internal-info", &info); err != nil {
		return 0, err
	}
	return info.createdMs()
}

func (s *Source) asListed(name string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	created, ok := s.known[name]
	return created, ok
}

func (s *Source) knownAs(topic string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if created, ok := s.known[topic]; ok {
		return created, true
	}
	for name, created := range s.known {
		if strings.HasPrefix(name, topic+"-partition-") {
			return created, true
		}
	}
	return 0, false
}

func madeAgain(was partition, name string, r sources.Range, now partition) error {
	return &sources.Changed{Range: r, Name: name,
		What: fmt.Sprintf("the topic was deleted and made again: it was made at %s, and the present one at %s", was.createdAt(), now.createdAt())}
}

func deleted(name string, r sources.Range) error {
	return &sources.Changed{Range: r, Name: name, What: "the topic was deleted"}
}

// wholeOf returns the last listed segment as a range, for an error. s.mu is held.
func (s *Source) wholeOf(p partition) sources.Range {
	r := sources.Range{Partition: p.id()}
	if all := s.listed[p.id()]; len(all) > 0 {
		g := all[len(all)-1]
		r.Segment, r.Start, r.End = g.ID, g.Start, g.End
	}
	return r
}

func (s *Source) wholeOfLocked(p partition) sources.Range {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wholeOf(p)
}

// find returns a listed partition. If it is not listed, it lists the partitions first.
func (s *Source) find(ctx context.Context, id sources.PartitionID) (partition, error) {
	return s.Find(ctx, id, s.Partitions, fmt.Sprintf("is not a partition of dataset %s, which reads topics %v", s.o.Dataset, s.o.Topics))
}

// layout has the present ledgers of a partition. The open one has its true number of entries.
type layout struct {
	internalStats
	asked   time.Time // before the request: whatever came later is younger
	last    messageAt // the last confirmed entry
	emptied []int64   // listed open segments whose ledgers are gone and had no entry
}

func (s *Source) layoutOf(ctx context.Context, p partition) (l layout, err error) {
	l.asked = time.Now()
	err = s.admin.get(ctx, adminPath(p.topic)+"/internalStats", &l.internalStats)
	if isNotFound(err) {
		return l, deleted(p.String(), s.wholeOfLocked(p))
	}
	if err == nil {
		l.last, err = parsePlace(l.LastConfirmed)
	}
	if err != nil {
		return l, err
	}
	if len(l.Ledgers) == 0 {
		return l, temporary(fmt.Errorf("%s has no ledger yet", p))
	}
	// Pulsar shows 0 entries for the open ledger.
	open := &l.Ledgers[len(l.Ledgers)-1]
	if open.Entries == 0 && l.last.Ledger == open.Ledger {
		open.Entries, open.Size = l.last.Entry+1, l.CurrentSize
	}
	return l, nil
}

func (l *layout) open() ledgerInfo { return l.Ledgers[len(l.Ledgers)-1] }

func (l *layout) find(ledger int64) (ledgerInfo, bool) {
	i := slices.IndexFunc(l.Ledgers, func(g ledgerInfo) bool { return g.Ledger == ledger })
	if i < 0 {
		return ledgerInfo{}, false
	}
	return l.Ledgers[i], true
}

// head returns the position after the last entry, in the open ledger.
func (l *layout) head() sources.Position {
	return position(l.open().Ledger, at(l.open().Entries, 0))
}

// Bounds returns the first existing entry as Low and the position after the last one as
// Head. A live partition is not bounded.
func (s *Source) Bounds(ctx context.Context, ids []sources.PartitionID) ([]sources.Bounds, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Bounds, len(ids))
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for i, id := range ids {
		g.Go(func() error {
			b := sources.Bounds{Partition: id, Bounded: !s.o.live(), Estimated: true}
			var l layout
			p, err := s.find(ctx, id)
			if err == nil {
				l, err = s.layoutOf(ctx, p)
			}
			if b.Err = err; err == nil {
				b.Low, b.Head = position(l.Ledgers[0].Ledger, 0), s.inSegment(p, l.head())
				s.mu.Lock()
				s.saw(p, &l)
				s.mu.Unlock()
			}
			all[i] = b
			return nil
		})
	}
	_ = g.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return all, nil
}

// inSegment returns a position with the number of the newest listed segment of its ledger.
func (s *Source) inSegment(p partition, at sources.Position) sources.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.listed[p.id()] {
		if ledgerOf(g.ID) == ledgerOf(at.Segment) {
			at.Segment = g.ID
		}
	}
	return at
}
