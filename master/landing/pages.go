package landing

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headrace/headrace/internal/chunk"
)

// Pages are the HTTP pages for producers by their patterns, with the method before.
func (s *Service) Pages() map[string]http.Handler {
	return map[string]http.Handler{
		"GET /v1/datasets/{dataset}/layout":                     s.page(s.getLayout),
		"POST /v1/datasets/{dataset}/records":                   s.page(s.postRecords),
		"GET /v1/datasets/{dataset}/transactions/{id}":          s.page(s.getTransaction),
		"POST /v1/datasets/{dataset}/transactions/{id}/chunks":  s.page(s.postChunk),
		"POST /v1/datasets/{dataset}/transactions/{id}/records": s.page(s.postStage),
		"POST /v1/datasets/{dataset}/transactions/{id}/commit":  s.page(s.postCommit),
		"POST /v1/datasets/{dataset}/transactions/{id}/land":    s.page(s.postLand),
		"POST /v1/datasets/{dataset}/end":                       s.page(s.postEnd),
	}
}

// answer is the JSON of every page.
type answer struct {
	Transaction string   `json:"transaction,omitempty"`
	Already     bool     `json:"already"`
	Records     int64    `json:"records"`
	Locators    []string `json:"locators,omitempty"` // of the staged chunks, for the commit
	Layout      *layout  `json:"layout,omitempty"`
	Error       string   `json:"error,omitempty"`
}

// layout is the JSON of how a dataset wants its records (landing.proto, LayoutReply).
type layout struct {
	Partitions    int    `json:"partitions"`
	ChunkBytes    int64  `json:"chunk_bytes"`
	MaxChunkBytes int64  `json:"max_chunk_bytes"`
	MaxRecord     int64  `json:"max_record"`
	Key           string `json:"key"`
	Ended         bool   `json:"ended"`
	StoredBytes   int64  `json:"stored_bytes"`
	MaxBytes      int64  `json:"max_bytes"`
	StageTTLMs    int64  `json:"stage_ttl_ms"`
	LandBytes     int64  `json:"land_bytes"`

	Upload *upload `json:"upload,omitempty"`
}

// upload is landing.proto's Upload.
type upload struct {
	URL    string `json:"url"`
	Stream string `json:"stream"`
	NowMs  int64  `json:"now_ms"`
}

// controlKey is the key of a request's http.ResponseController in its context.
type controlKey struct{}

// A body that holds room has a minute to come, and a second more for each bodyRate bytes that
// have come.
const (
	bodyWithin = time.Minute
	bodyRate   = 64 << 10
)

// body appends a body to data, up to its capacity. It holds room, so the body must come in time.
func body(r *http.Request, data []byte) ([]byte, error) {
	b := bodyOf(r)
	defer b.done()
	return b.read(data)
}

// arriving is a body that is read in parts, which must come in time together.
type arriving struct {
	io.Reader
	deadline func(time.Time)
	by       time.Time // the deadline of the next read
	came     int       // bytes
}

// bodyOf starts the clock for the rest of a body. Call done at the end.
func bodyOf(r *http.Request) *arriving {
	b := unlimited(r)
	b.by = time.Now().Add(bodyWithin)
	b.deadline(b.by)
	return b
}

func unlimited(r *http.Request) *arriving {
	b := &arriving{Reader: r.Body, deadline: func(time.Time) {}}
	if c, ok := r.Context().Value(controlKey{}).(*http.ResponseController); ok { // else it is a test without a connection
		b.deadline = func(at time.Time) { _ = c.SetReadDeadline(at) }
	}
	return b
}

// done removes the deadline: net/http reads on after the body, to see whether the caller goes away.
func (b *arriving) done() { b.deadline(time.Time{}) }

// linesWithin is how long a body of lines may pause. It may take as long as it needs.
const linesWithin = 5 * time.Minute

// pausing is a body whose every part must come within linesWithin. Between two reads it has no
// deadline: what has come is stored then.
type pausing struct{ *arriving }

func (b pausing) Read(p []byte) (int, error) {
	b.deadline(time.Now().Add(linesWithin))
	defer b.done()
	return b.arriving.Read(p)
}

// read appends to data, up to its capacity.
func (b *arriving) read(data []byte) ([]byte, error) {
	for len(data) < cap(data) {
		n, err := b.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		before := b.came / bodyRate
		b.came += n
		if more := b.came/bodyRate - before; more > 0 {
			b.by = b.by.Add(time.Duration(more) * time.Second)
			b.deadline(b.by)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: the body ended early, or came too slowly (%v, and a second for each %d KiB): %w", ErrNotReady, bodyWithin, bodyRate>>10, err)
		}
	}
	return data, nil
}

// passMost is the bytes of a body that are read after an error: the largest chunk.
const passMost = chunk.HeaderSize + chunk.MaxBytes

// pass reads what is left of a body, at most so many bytes, before the answer is sent. If more than
// 256 KiB are left, net/http answers and then ends the connection. A caller that sends its whole body
// before it reads would then see a broken connection and no answer, at each try.
func pass(r *http.Request, most int64) {
	// curl says Expect, and sends a large body only when it is told to go on.
	if r.Header.Get("Expect") != "" || r.Context().Err() != nil {
		return
	}
	b := bodyOf(r)
	defer b.done()
	part := make([]byte, 0, 64<<10)
	for most > 0 {
		got, err := b.read(part)
		if err != nil || len(got) < cap(part) {
			return
		}
		most -= int64(len(got))
	}
}

// page turns errors into HTTP's codes. 429 and 503 say when to try again.
func (s *Service) page(do func(r *http.Request) (answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		a, err := do(r.WithContext(context.WithValue(r.Context(), controlKey{}, control)))
		code := http.StatusOK
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) { // else the body did not come in time
				pass(r, passMost)
			}
			a = answer{Error: err.Error()}
			code = httpCode(err)
			switch full, ok := errors.AsType[*Full](err); {
			case ok:
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(full.After.Seconds()))))
			case code == http.StatusServiceUnavailable:
				w.Header().Set("Retry-After", "1")
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(a) // a caller that has gone
	})
}

func httpCode(err error) int {
	switch codeOf(err) {
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func (s *Service) getLayout(r *http.Request) (answer, error) {
	l, err := s.Layout(r.Context(), r.PathValue("dataset"))
	if err != nil {
		return answer{}, err
	}
	var up *upload
	if u := l.Upload; u.URL != "" {
		up = &upload{u.URL, u.Stream, u.Now.UnixMilli()}
	}
	return answer{Layout: &layout{Upload: up, Partitions: l.Partitions, ChunkBytes: l.ChunkBytes, MaxChunkBytes: chunk.MaxBytes, MaxRecord: l.MaxRecord, Key: l.Key,
		Ended: l.Ended, StoredBytes: l.Stored, MaxBytes: l.MaxBytes, StageTTLMs: l.StageTTL.Milliseconds(), LandBytes: landMost}}, nil
}

// getTransaction says whether a transaction is visible.
func (s *Service) getTransaction(r *http.Request) (answer, error) {
	id := r.PathValue("id")
	landed, n, err := s.Landed(r.Context(), r.PathValue("dataset"), id)
	return answer{Transaction: id, Already: landed, Records: n}, err
}

// postChunk stages one chunk whose form is that of docs/LANDING.md.
func (s *Service) postChunk(r *http.Request) (answer, error) {
	part, err := strconv.Atoi(r.URL.Query().Get("partition"))
	if err != nil {
		return answer{}, fmt.Errorf("%w: ?partition=N is missing or not a number", ErrInvalid)
	}
	id := r.PathValue("id")
	p, err := s.stageable(r.Context(), r.PathValue("dataset"), id, part)
	if err != nil {
		return answer{}, err
	}
	head, err := io.ReadAll(io.LimitReader(r.Body, chunk.HeaderSize))
	if err != nil {
		return answer{}, fmt.Errorf("%w: the body ended early: %w", ErrNotReady, err)
	}
	h, err := chunk.ReadHeader(head)
	if err != nil {
		return answer{}, noChunk(id, err)
	}
	back, err := s.take(r.Context(), h.Memory())
	if err != nil {
		return answer{}, err
	}
	defer back()
	data, err := body(r, append(make([]byte, 0, len(head)+h.Body+1), head...))
	if err != nil {
		return answer{}, err
	}
	l, err := s.stage(r.Context(), p, id, part, data)
	if err != nil {
		return answer{}, err
	}
	return answer{Transaction: id, Records: int64(l.Records), Locators: []string{l.String()}}, nil
}

// postRecords is a transaction in one request; Idempotency-Key is its id.
func (s *Service) postRecords(r *http.Request) (answer, error) {
	name, id := r.PathValue("dataset"), r.Header.Get("Idempotency-Key")
	if id == "" {
		return answer{}, fmt.Errorf("%w: the header Idempotency-Key is missing: it names the transaction, so that the same request can be sent again", ErrInvalid)
	}
	if err := checkTransaction(id); err != nil {
		return answer{}, err
	}
	p, err := s.place(r.Context(), name)
	if err != nil {
		return answer{}, err
	}
	if landed, records, err := s.Landed(r.Context(), name, id); err != nil || landed {
		if landed {
			pass(r, math.MaxInt64)
		}
		return answer{Transaction: id, Already: landed, Records: records}, err
	}
	staged, _, err := s.stageLines(r, p, id)
	if err != nil {
		return answer{}, err
	}
	if len(staged) == 0 { // no record: whoever sends some with this key later has not sent them before
		return answer{Transaction: id}, nil
	}
	done, err := s.commitThen(r.Context(), name, id, texts(staged), func(done Committed, err error) {
		if err != nil || done.Already {
			s.drop(p, staged)
		}
	})
	return answer{Transaction: id, Already: done.Already, Records: done.Records}, err
}

func (s *Service) postStage(r *http.Request) (answer, error) {
	p, err := s.place(r.Context(), r.PathValue("dataset"))
	if err != nil {
		return answer{}, err
	}
	staged, n, err := s.stageLines(r, p, r.PathValue("id"))
	return answer{Transaction: r.PathValue("id"), Records: n, Locators: texts(staged)}, err
}

func texts(all []chunk.Locator) []string {
	var texts []string
	for _, l := range all {
		texts = append(texts, l.String())
	}
	return texts
}

// maxCommit is the bytes of a commit's body: mostChunks locators of 130 bytes have room, which
// is more than any locator has.
const maxCommit = 32 << 20

const _ = uint(maxCommit - mostChunks*(130+len(`"",`)))

func (s *Service) postCommit(r *http.Request) (answer, error) {
	locators, err := s.locators(r)
	if err != nil {
		return answer{}, err
	}
	done, err := s.Commit(r.Context(), r.PathValue("dataset"), r.PathValue("id"), locators)
	return answer{Transaction: r.PathValue("id"), Already: done.Already, Records: done.Records}, err
}

// locators reads the body of a commit.
func (s *Service) locators(r *http.Request) ([]string, error) {
	size := r.ContentLength
	if size < 0 || size > maxCommit {
		size = maxCommit
	}
	back, err := s.take(r.Context(), 2*size) // the text, and the locators of it
	if err != nil {
		return nil, err
	}
	defer back()
	text, err := body(r, make([]byte, 0, size+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxCommit:
		return nil, fmt.Errorf("the body is longer than %d bytes: %w", maxCommit, tooMany(r.PathValue("id")))
	}
	var all struct {
		Locators []string `json:"locators"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf(`%w: the body is not {"locators": [...]}: %w`, ErrInvalid, err)
	}
	return all.Locators, nil
}

func (s *Service) postEnd(r *http.Request) (answer, error) {
	return answer{}, s.End(r.Context(), r.PathValue("dataset"))
}

// Lines wait until their chunk is full. A dataset may have 1,024 partitions, each with a chunk, and
// many producers may send lines at the same time. So all bodies share gatherMost, and one body has at
// most gatherOne. A body above its share stages its largest chunk before it is full.
const (
	gatherMost = roomMost
	gatherOne  = chunk.MaxBytes
)

// mayGather is the bytes of records that one of the bodies may keep now.
func (s *Service) mayGather() int { return int(min(gatherOne, s.gather/max(1, s.bodies.Load()))) }

// largest is the number of the builder with the most bytes.
func largest(builders []chunk.Builder) (at int) {
	for i := range builders {
		if builders[i].Size() > builders[at].Size() {
			at = i
		}
	}
	return at
}

// plain returns an error if a body is not lines as they are: their bytes would become records.
func plain(r *http.Request) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fmt.Errorf("%w: the body has Content-Encoding %s: send the lines as they are; the master compresses them", ErrInvalid, coding)
	}
	if kind := r.Header.Get("Content-Type"); strings.HasPrefix(strings.ToLower(kind), "multipart/") {
		return fmt.Errorf("%w: the body has Content-Type %s: send the lines alone, as `curl --data-binary @FILE` does", ErrInvalid, kind)
	}
	return nil
}

// stageLines stages the lines of a body; those that are empty are no records. After an error
// nothing of it stays.
func (s *Service) stageLines(r *http.Request, p *place, id string) (staged []chunk.Locator, n int64, err error) {
	defer func() {
		if err != nil {
			s.drop(p, staged)
			staged = nil
		}
	}()
	if err := plain(r); err != nil {
		return nil, 0, err
	}
	ctx, builders := r.Context(), make([]chunk.Builder, p.Landing.Partitions)
	s.bodies.Add(1)
	defer s.bodies.Add(-1)
	unsent := 0               // bytes in builders
	rest := chunk.FirstOf(id) // where records without a key go
	send := func(part int) error {
		b := &builders[part]
		if b.Records() == 0 {
			return nil
		}
		if len(staged) == mostChunks {
			return tooMany(id)
		}
		l, err := s.Stage(ctx, p.Name, id, part, b.Chunk())
		if err == nil {
			staged = append(staged, l)
		}
		unsent -= b.Size()
		*b = chunk.Builder{} // its memory too: there may be many partitions
		rest++
		return err
	}
	lines := bufio.NewScanner(pausing{unlimited(r)})
	lines.Buffer(make([]byte, 64<<10), int(p.MaxRecord)+1)
	for lines.Scan() {
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			continue
		}
		var key []byte
		if p.Key != "" {
			if key, err = chunk.KeyOf(p.Key, line); err != nil {
				return staged, n, fmt.Errorf("%w: record %d: %w", ErrInvalid, n, err)
			}
		}
		part := chunk.PartitionOf(key, len(builders), rest)
		b := &builders[part]
		before := b.Size()
		b.Add(chunk.Record{Key: key, Value: line})
		unsent += b.Size() - before
		n++
		if int64(b.Size()) >= p.ChunkBytes {
			if err := send(part); err != nil {
				return staged, n, err
			}
		}
		for unsent > s.mayGather() {
			if err := send(largest(builders)); err != nil {
				return staged, n, err
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return staged, n, fmt.Errorf("%w: line %d is longer than landing.max_record, %d bytes", ErrInvalid, n+1, p.MaxRecord)
	case err != nil: // the body was cut short: nothing of it may land
		return staged, n, fmt.Errorf("%w: the body ended early, or paused for more than %v: %w", ErrNotReady, linesWithin, err)
	}
	for part := range builders {
		if err := send(part); err != nil {
			return staged, n, err
		}
	}
	return staged, n, nil
}
