package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// At the heads of partitions without an end a cursor waits for records. A question
// for each would be a connection for each: who waits at one leader asks together.
const (
	pollsMost   = 16 // questions that wait at one leader at a time
	pollShort   = 25 // ms that the last of them waits: soon it takes along who came since
	pollPiece   = 1 << 20
	gatherMost  = 5 * time.Millisecond
	fetchesMost = 16 // requests for what is there already, at a time
)

// errDirect: the cursor has to ask for itself; what it is told is for it to judge.
var errDirect = errors.New("to be asked for by itself")

// tails asks leaders what comes at the heads of partitions. Its goroutines, at most
// pollsMost a leader, end when nobody waits, or with close.
type tails struct {
	client *client
	wait   *int32 // ms that a broker may keep a question
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows, and all heads and waitings
	closed  bool
	leaders map[int32]*heads
}

// heads are those who wait at one leader.
type heads struct {
	open  []*waiting // in no question now
	polls int        // questions, under way or in the making
	until time.Time  // when all that are under way end, so that one may follow them
}

// waiting is a cursor at its head.
type waiting struct {
	p      partition
	offset int64
	epoch  int32         // of the record before it
	out    chan<- answer // has room
	memory []byte        // for the answer
	gone   bool
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

// add has w answered when there is something at its head.
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

// leave: nobody reads w's answer any more.
func (t *tails) leave(w *waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.gone = true
}

// poll asks again and again, until nobody waits that is in no other question.
func (t *tails) poll(leader int32, h *heads) {
	var memory []byte
	for {
		asked, wait := t.take(h)
		if len(asked) == 0 {
			return
		}
		r, err := t.ask(leader, asked, wait, memory)
		if err != nil {
			_ = pause(t.ctx, retryAfter) // who asks for itself is told why
			memory = nil
		} else {
			memory = r.b
		}
		if left := t.answer(leader, h, asked, r, err); left > pollsMost {
			// Those who were answered come back soon, and may be asked for together.
			_ = pause(t.ctx, min(gatherMost, time.Millisecond+time.Duration(left)*2*time.Microsecond))
		}
	}
}

// take gives those who are in no question, each partition once, and for how many ms
// the broker may wait. None: this goroutine ends.
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

// tell answers, once, who is still there.
func (w *waiting) tell(a answer) {
	if !w.gone {
		w.gone = true
		w.out <- a
	}
}

// answer tells those readers for which records came, and returns how many go on waiting.
func (t *tails) answer(leader int32, h *heads, asked map[headKey]*waiting, r *reader, err error) (left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		// An answer that cannot be read to its end says nothing of the partitions that
		// come later in it: they stay in asked, and ask by themselves.
		_ = parseFetches(r, func(key headKey, f *fetched) {
			w := asked[key]
			if w == nil {
				return
			}
			switch next, _, _ := overview(f.records); {
			case f.code == codeNone && next > w.offset:
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

// ask is one Fetch for many partitions of one leader.
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

// parseFetches gives each partition of an answer.
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
