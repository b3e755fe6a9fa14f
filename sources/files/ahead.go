package files

import (
	"container/list"
	"context"
	"sync"

	"github.com/headrace/headrace/internal/storage"
)

const (
	// blockBytes is the size of the blocks in which objects are read.
	blockBytes = 1 << 20
	// mostAtOnce is how many blocks one request reads ahead at most. The request itself costs
	// as much time as some MB.
	mostAtOnce = 8
	// keptBlocks is how many blocks of a dataset are in memory at most, without those that are
	// being fetched.
	keptBlocks = 96
)

// ahead reads objects ahead of their readers, and keeps the bytes that were read last, because
// the next lease often begins where one ended. All readers of one dataset in this process share
// it.
type ahead struct {
	objects storage.Objects
	ctx     context.Context // ends with close: a reader that gives up does not end it for others
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	blocks map[blockKey]*block
	used   *list.List // of *block, the one used last in front
}

type blockKey struct {
	name, tag string
	n         int64
}

type block struct {
	key  blockKey
	done chan struct{}
	data []byte
	err  error
	at   *list.Element
}

func newAhead(objects storage.Objects) *ahead {
	a := &ahead{objects: objects, blocks: map[blockKey]*block{}, used: list.New()}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// close ends the running requests, and waits for them.
func (a *ahead) close() {
	a.cancel()
	a.running.Wait()
}

// read fills p, which lies inside the object.
func (a *ahead) read(ctx context.Context, o *object, p []byte, off int64) error {
	for len(p) > 0 {
		n := off / blockBytes
		b := a.block(o, n, (off+int64(len(p))-1)/blockBytes)
		select {
		case <-b.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if b.err != nil {
			return b.err
		}
		k := copy(p, b.data[off-n*blockBytes:])
		p, off = p[k:], off+int64(k)
	}
	return nil
}

// block returns block n, which is in memory or being fetched. It fetches further blocks if the
// object is read in order. The reader wants at least all blocks up to last.
func (a *ahead) block(o *object, n, last int64) *block {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := (o.is.Size + blockBytes - 1) / blockBytes
	from, to := o.streams.next(n, last, end)
	b := a.blocks[a.key(o, n)]
	if b == nil && (from > n || from >= to) { // it was thrown away
		a.fetch(o, n, n+1)
	}
	a.fetch(o, from, to)
	if b == nil {
		b = a.blocks[a.key(o, n)]
	}
	a.used.MoveToFront(b.at)
	return b
}

func (a *ahead) key(o *object, n int64) blockKey { return blockKey{o.is.Key, o.is.Tag, n} }

// fetch asks for the blocks [from, to) that are not there, in as few requests as it can.
// a.mu is held.
func (a *ahead) fetch(o *object, from, to int64) {
	for from < to {
		if a.blocks[a.key(o, from)] != nil {
			from++
			continue
		}
		var run []*block
		for ; from < to && a.blocks[a.key(o, from)] == nil; from++ {
			b := &block{key: a.key(o, from), done: make(chan struct{})}
			b.at = a.used.PushFront(b)
			a.blocks[b.key] = b
			run = append(run, b)
		}
		size := o.is.Size
		a.running.Go(func() { a.get(run, size) })
	}
	for a.used.Len() > keptBlocks {
		oldest := a.used.Back()
		b := oldest.Value.(*block)
		select {
		case <-b.done:
		default:
			return // the oldest one is still being fetched
		}
		a.drop(b)
	}
}

func (a *ahead) drop(b *block) {
	a.used.Remove(b.at)
	delete(a.blocks, b.key)
}

func (a *ahead) get(run []*block, size int64) {
	first := run[0].key
	start := first.n * blockBytes
	data := make([]byte, min(size-start, int64(len(run))*blockBytes))
	err := a.objects.ReadAt(a.ctx, first.name, first.tag, data, start)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, b := range run {
		if err == nil {
			b.data = data[i*blockBytes : min(len(data), (i+1)*blockBytes)]
		} else {
			b.err = &placed{err}
			if a.blocks[b.key] == b {
				a.drop(b) // the next reader that wants it asks again
			}
		}
		close(b.done)
	}
}

// streams are the places at which an object is read in order: one for text, one for each
// column of a Parquet file.
type streams struct{ all []stream }

type stream struct {
	at      int64 // the block that was read last
	fetched int64 // asked for up to here
	run     int64
}

const mostStreams = 256

// next returns the blocks [from, to) to fetch. The reader reads block n now, and wants all up
// to last.
func (s *streams) next(n, last, end int64) (from, to int64) {
	most := max(1, min(mostAtOnce, keptBlocks/int64(2*max(1, len(s.all)))))
	for i := range s.all {
		st := &s.all[i]
		if n != st.at && n != st.at+1 {
			continue
		}
		st.at = n
		if max(n, last) < st.fetched-st.run/2 || st.fetched >= end {
			return n, n
		}
		st.run = min(2*st.run, most)
		from = st.fetched
		st.fetched = min(end, max(from+st.run, last+1))
		return from, st.fetched
	}
	if len(s.all) == mostStreams {
		s.all = s.all[:copy(s.all, s.all[1:])]
	}
	s.all = append(s.all, stream{at: n, fetched: min(end, last+1), run: 1})
	return n, min(end, last+1)
}
