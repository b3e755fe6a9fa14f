package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/headrace/headrace/sources/brokers"
)

// At the head of a live partition a cursor waits for records. A request for each cursor
// would need a connection for each. So cursors that wait at the same leader share requests.
const (
	pollsMost   = 16                   // requests that wait at one leader at a time
	pollShort   = 25                   // ms that the last of them waits; the next one then takes newer cursors too
	pollPiece   = 1 << 20              // bytes of one partition in an answer
	gatherMost  = 5 * time.Millisecond // wait for cursors that come back after an answer
	fetchesMost = 16                   // direct requests of live cursors at a time
)

// errDirect tells a cursor to send a request of its own and to judge the answer itself.
var errDirect = errors.New("to be asked for by itself")

// tails waits for new records at the heads of partitions. It has at most pollsMost goroutines
// per leader. They end when no cursor waits, or with close.
type tails struct {
	client *client
	wait   *int32 // ms that a broker may keep a request
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows, and all heads and waitings
	closed  bool
	leaders map[int32]*heads
}

// heads has the cursors that wait at one leader.
type heads struct {
	open  []*waiting // in no request now
	polls int        // goroutines that send requests
	until time.Time  // when the requests under way end, so that the next one can take all cursors
}

// waiting is a cursor that waits at the head of its partition.
type waiting struct {
	p      partition
	offset int64
	epoch  int32         // of the record before it
	out    chan<- answer // has room
	memory []byte        // for the answer
	gone   bool          // answered, or closed
}

type headKey struct {
	topic  topicID
	number int32
}

func newTails(c *client, wait *int32) *tails {
	t := &tails{client: c, wait: wait, leaders: map[int32]*heads{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *tails) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}

// add waits for records at the head of w. w then gets an answer.
func (t *tails) add(leader int32, w *waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		w.out <- answer{offset: w.offset, err: errDirect}
		return
	}
	h := t.leaders[leader]
	if h == nil {
		h = &heads{}
		t.leaders[leader] = h
	}
	h.open = append(h.open, w)
	if h.polls < pollsMost {
		h.polls++
		t.wg.Go(func() { t.poll(leader, h) })
	}
}

// leave notes that nobody reads the answer of w any more.
func (t *tails) leave(w *waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.gone = true
}

// poll sends requests until every waiting cursor is in another goroutine's request.
func (t *tails) poll(leader int32, h *heads) {
	var memory []byte
	for {
		asked, wait := t.take(h)
		if len(asked) == 0 {
			return
		}
		r, err := t.ask(leader, asked, wait, memory)
		if err != nil {
			_ = brokers.Pause(t.ctx, retryAfter) // the cursors ask for themselves and get the error
			memory = nil
		} else {
			memory = r.b
		}
		if left := t.answer(leader, h, asked, r, err); left > pollsMost {
			// The cursors that were answered come back soon, and can share the next request.
			_ = brokers.Pause(t.ctx, min(gatherMost, time.Millisecond+time.Duration(left)*2*time.Microsecond))
		}
	}
}

// take returns the cursors that are in no request, one for each partition, and for how many
// ms the broker may wait. If there are none, the goroutine must end.
func (t *tails) take(h *heads) (map[headKey]*waiting, int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := map[headKey]*waiting{}
	h.open = slices.DeleteFunc(h.open, func(w *waiting) bool {
		key := headKey{w.p.topic, w.p.number}
		if w.gone || t.closed {
			w.tell(answer{offset: w.offset, err: errDirect})
			return true
		}
		if asked[key] != nil {
			return false
		}
		asked[key] = w
		return true
	})
	if len(asked) == 0 {
		h.polls--
		return nil, 0
	}
	now := time.Now()
	if until := h.until.Sub(now); until < pollShort*time.Millisecond || until > time.Minute {
		h.until = now.Add(time.Duration(*t.wait) * time.Millisecond)
	}
	wait := int32(h.until.Sub(now) / time.Millisecond)
	if h.polls == pollsMost {
		wait = min(wait, pollShort)
	}
	return asked, wait
}

// tell sends the answer, unless w was answered before or is closed.
func (w *waiting) tell(a answer) {
	if !w.gone {
		w.gone = true
		w.out <- a
	}
}

// answer answers the cursors for which records came, or an error, and returns how many go
// on waiting.
func (t *tails) answer(leader int32, h *heads, asked map[headKey]*waiting, r *reader, err error) (left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		// An answer that cannot be read to its end says nothing about the partitions that
		// come later in it. They stay in asked, and their cursors ask for themselves.
		_ = parseFetches(r, func(key headKey, f *fetched) {
			w := asked[key]
			if w == nil {
				return
			}
			switch next, _, _, err := overview(f.records); {
			case f.code == codeNone && err == nil && next > w.offset:
				f.buf = append(w.memory[:0], f.records...) // the answer is shared
				f.records = f.buf
				w.tell(answer{offset: w.offset, fetched: f, leader: leader})
			case f.code == codeNone && len(f.records) == 0 && f.stable == w.offset && !f.parted:
				h.open = append(h.open, w)
				left++
			default:
				return
			}
			delete(asked, key)
		})
	}
	for _, w := range asked { // without an answer, or with an error
		w.tell(answer{offset: w.offset, err: errDirect})
	}
	return left
}

// ask sends one Fetch for many partitions of one leader.
func (t *tails) ask(leader int32, asked map[headKey]*waiting, wait int32, into []byte) (*reader, error) {
	byTopic := map[topicID][]*waiting{}
	for key, w := range asked {
		byTopic[key.topic] = append(byTopic[key.topic], w)
	}
	w := fetchRequest(wait, fetchMost)
	w.length(len(byTopic))
	for topic, list := range byTopic {
		w.id(topic)
		w.length(len(list))
		for _, x := range list {
			w.fetchPartition(x.p.number, x.offset, x.epoch, pollPiece)
		}
		w.tags()
	}
	w.fetchEnd()
	return t.client.ask(t.ctx, protocol.Fetch, broker(leader), w, fetchLimit, into)
}

// parseFetches calls each for every partition of an answer.
func parseFetches(r *reader, each func(headKey, *fetched)) error {
	r.i32() // throttle
	if code := r.i16(); code != codeNone {
		return answered(code, "Fetch")
	}
	r.i32() // session
	for n := r.length(18); n > 0 && r.err == nil; n-- {
		topic := r.id()
		for k := r.length(36); k > 0 && r.err == nil; k-- {
			f := &fetched{}
			number := r.fetchedPartition(f)
			r.fetchedTags(f)
			if r.err == nil {
				each(headKey{topic, number}, f)
			}
		}
		r.tags()
	}
	if r.err != nil {
		return fmt.Errorf("answer to Fetch: %w", r.err)
	}
	return nil
}
