package landing

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/chunk"
)

// A producer that has the rest of its transaction at hand need not wait twice, for its chunks
// and then for its commit. Land stores them and commits in one call. The order stays: the
// commit begins when all chunks are durable, so a visible transaction has all of its chunks.

// landMost is the records of a call of Land, in bytes before compression. More is staged first.
const landMost = 16 << 20

// storing is how many chunks of a call are stored at a time.
const storing = 4

// NewChunk is a chunk that is staged and committed in one call.
type NewChunk struct {
	Partition int
	Data      []byte // docs/LANDING.md, "The form of a chunk"
}

// Land stages the last chunks of a transaction, and makes it visible with those that locators
// name. It returns when that is durable. If the transaction is visible already, nothing is
// stored. After an error no chunk of the call stays.
func (s *Service) Land(ctx context.Context, name, transaction string, locators []string, last []NewChunk) (Committed, error) {
	heads := make([][]byte, len(last))
	for i := range last {
		heads[i] = last[i].Data
	}
	_, memory, err := headers(transaction, heads)
	if err != nil {
		return Committed{}, err
	}
	back, err := s.take(ctx, memory)
	if err != nil {
		return Committed{}, err
	}
	return s.land(ctx, name, transaction, locators, last, back)
}

// headers reads the headers of the chunks of a call, and says what memory they take.
func headers(transaction string, chunks [][]byte) (all []chunk.Header, memory int64, err error) {
	records, bodies := 0, 0
	for _, b := range chunks {
		h, err := chunk.ReadHeader(b)
		if err != nil {
			return nil, 0, noChunk(transaction, err)
		}
		all = append(all, h)
		memory += h.Memory()
		bodies += h.Body
		if records += h.Raw; records > landMost || bodies > landMost+len(all)*chunk.HeaderSize {
			return nil, 0, fmt.Errorf("%w: transaction %q: the chunks of one call have more than %d bytes of records (land_bytes of the layout): stage them, and commit then", ErrInvalid, transaction, landMost)
		}
	}
	return all, memory, nil
}

// land is Land when there is room. back gives it back.
func (s *Service) land(ctx context.Context, name, transaction string, locators []string, last []NewChunk, back func()) (Committed, error) {
	if len(locators)+len(last) == 0 { // the id would be used up for nothing
		back()
		return Committed{}, fmt.Errorf("%w: transaction %q: the call names no chunk and has none", ErrInvalid, transaction)
	}
	p, a, ended, err := s.begin(ctx, name, transaction, len(locators)+len(last))
	if err != nil {
		back()
		return Committed{}, err
	}
	return s.apart(ctx, ended, func(ctx context.Context) (Committed, error) {
		defer back()
		if err := s.recall(ctx, p, a); err != nil {
			return Committed{}, err
		}
		// Nothing is waited for if it was never committed.
		if known, err := s.srv.Knows(ctx, p.ID, transaction); err != nil {
			return Committed{}, err
		} else if known {
			if done, err := s.before(ctx, p, a, transaction); err != nil || done.Already {
				return done, err
			}
		}
		staged, err := s.stageAll(ctx, p, transaction, last)
		var done Committed
		if err == nil {
			done, err = s.appear(ctx, p, a, transaction, locators, staged)
		}
		if err != nil || done.Already {
			s.drop(p, staged)
		}
		return done, err
	})
}

// stageAll stages chunks side by side. staged are those that are durable, also after an error.
func (s *Service) stageAll(ctx context.Context, p *place, transaction string, last []NewChunk) (staged []chunk.Locator, err error) {
	for _, c := range last {
		if err := s.mayStage(p, c.Partition); err != nil {
			return nil, err
		}
	}
	var g errgroup.Group
	g.SetLimit(storing)
	all := make([]chunk.Locator, len(last))
	for i, c := range last {
		g.Go(func() (err error) {
			all[i], err = s.stage(ctx, p, transaction, c.Partition, c.Data)
			return err
		})
	}
	err = g.Wait()
	for _, l := range all {
		if l.Key != "" {
			staged = append(staged, l)
		}
	}
	return staged, err
}

// postLand is Land. Its body is a JSON object of ?head=N bytes, {"locators": [...],
// "partitions": [...]}, the headers of the chunks, one for each partition that is named, and
// their bodies.
func (s *Service) postLand(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	size, err := strconv.ParseInt(r.URL.Query().Get("head"), 10, 64)
	if err != nil || size < 0 || size > maxCommit {
		return answer{}, fmt.Errorf("%w: ?head=N is missing, or not the bytes of the JSON before the chunks, %d at most", ErrInvalid, maxCommit)
	}
	var named struct {
		Locators   []string `json:"locators"`
		Partitions []int    `json:"partitions"`
	}
	if err := s.head(r, size, &named); err != nil {
		return answer{}, err
	}
	if len(named.Locators)+len(named.Partitions) > mostChunks {
		return answer{}, tooMany(id)
	}
	last := make([]NewChunk, len(named.Partitions))
	heads := make([][]byte, len(last))
	for i := range last {
		heads[i] = make([]byte, chunk.HeaderSize)
		if _, err := io.ReadFull(r.Body, heads[i]); err != nil {
			return answer{}, fmt.Errorf("%w: the body ended in the headers of the chunks: %w", ErrNotReady, err)
		}
	}
	all, memory, err := headers(id, heads)
	if err != nil {
		return answer{}, err
	}
	back, err := s.take(r.Context(), memory)
	if err != nil {
		return answer{}, err
	}
	if err := bodiesOf(r, all, heads); err != nil {
		back()
		return answer{}, err
	}
	for i, part := range named.Partitions {
		last[i] = NewChunk{part, heads[i]}
	}
	done, err := s.land(r.Context(), r.PathValue("dataset"), id, named.Locators, last, back)
	return answer{Transaction: id, Already: done.Already, Records: done.Records}, err
}

// bodiesOf appends the body of each chunk to its header. All of them hold room until the last
// one has come, so they have one deadline.
func bodiesOf(r *http.Request, all []chunk.Header, heads [][]byte) (err error) {
	bodies := bodyOf(r)
	defer bodies.done()
	for i, h := range all {
		size := chunk.HeaderSize + h.Body
		if i == len(all)-1 {
			size++ // nothing may follow
		}
		if heads[i], err = bodies.read(append(make([]byte, 0, size), heads[i]...)); err != nil {
			return err
		}
	}
	return nil
}

// head reads the JSON that begins a body.
func (s *Service) head(r *http.Request, size int64, into any) error {
	back, err := s.take(r.Context(), 2*size) // the text, and what is in it
	if err != nil {
		return err
	}
	defer back()
	text, err := body(r, make([]byte, 0, size))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf(`%w: the body does not begin with {"locators": [...], "partitions": [...]} of %d bytes: %w`, ErrInvalid, size, err)
	}
	return nil
}
