package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
)

// books asks the master questions that any tool may ask.
type books struct {
	conn   *grpc.ClientConn
	master link.Target
	api    headracev1.DatasetsClient
	// The last answer of leases, and when it came. Only the goroutine that makes trouble uses them.
	last  held
	asked time.Time
}

const (
	answersWithin = 300 * time.Millisecond
	stale         = 2 * time.Second
)

var ready = grpc.WaitForReady(true)

func openBooks(address, state string) (*books, error) {
	master := link.Target{Address: address, State: state}
	creds, err := master.Credentials(link.TLS{})
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{ // a killed master is back soon
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, err
	}
	return &books{conn: conn, master: master, api: headracev1.NewDatasetsClient(conn)}, nil
}

func (b *books) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := asked(ctx, b.api.Job, &headracev1.JobRequest{})
	return err
}

// asked repeats a question if the master died before it answered.
func asked[Q, A any](ctx context.Context, ask func(context.Context, Q, ...grpc.CallOption) (A, error), question Q) (A, error) {
	for {
		answer, err := ask(ctx, question, ready)
		if err == nil || status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return answer, err
		}
	}
}

// held says which ranks and agents hold leases.
type held struct {
	ranks  map[int]bool
	agents map[string]bool
}

// leases asks which ranks and agents hold leases now. If the master does not answer at
// once, leases gives its last answer, if that is at most `stale` old: leases stay where they
// are while the master is away.
func (b *books) leases(ctx context.Context) held {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	h := held{map[int]bool{}, map[string]bool{}}
	job, err := b.api.Job(ctx, &headracev1.JobRequest{})
	if err != nil {
		if time.Since(b.asked) > stale {
			return h
		}
		return b.last
	}
	defer func() { b.last, b.asked = h, time.Now() }()
	for _, w := range job.Workers {
		if w.Leases > 0 {
			h.ranks[int(w.Rank)], h.agents[w.Agent] = true, true
		}
	}
	return h
}

func (h held) of(v target) bool {
	switch {
	case v.life != nil:
		return h.ranks[v.life.rank]
	case v.agent < 0:
		return len(h.ranks) > 0
	}
	return h.agents[fmt.Sprintf("agent-%d", v.agent)]
}

// settledAll reports whether all records of all inputs are settled. It is for inputs without an end.
func (b *books) settledAll(ctx context.Context, inputs []*input) bool {
	for _, in := range inputs {
		d, err := asked(ctx, b.api.Describe, &headracev1.DescribeRequest{Name: in.name})
		if err != nil || !allIn(d, in.records) {
			return false
		}
	}
	return true
}

// allIn reports whether all records are settled and nothing waits to be read. A pending
// piece may hold no record: for example, what a steal left of a Pulsar entry, after its last
// message. Such a piece needs a trainer that still runs, which gets it and settles it.
func allIn(d *headracev1.Dataset, records int) bool {
	return settledOf(d) >= int64(records) && d.Counts.GetPending() == 0
}

// settledOf is the number of settled records. It is right only if one pass is read and
// nothing is excluded. If the unit of offsets is not records, it counts acked records.
func settledOf(d *headracev1.Dataset) int64 {
	if d.Unit != "records" {
		return d.GetRecords().GetRows()
	}
	return d.Counts.Settled
}

// balance lists what does not add up in the master's own accounts at the end.
func (b *books) balance(ctx context.Context, inputs []*input) (wrong []string) {
	for _, in := range inputs {
		d, err := asked(ctx, b.api.Describe, &headracev1.DescribeRequest{Name: in.name})
		if err != nil {
			return append(wrong, fmt.Sprintf("describe %s: %v", in.name, err))
		}
		k := d.Counts
		if in.live {
			if !restsWell(d, in.records) {
				wrong = append(wrong, fmt.Sprintf("%s is %q (%s) with %v when all %d records are in", in.name, d.State, d.Reason, k, in.records))
			}
			continue
		}
		in.dropped = k.Dropped
		if d.State != "done" || k.Settled != k.Listed || k.Acked+k.Dropped != k.Settled || !in.drops && k.Dropped > 0 || k.Pending != 0 || k.Leased != 0 || k.Listed == 0 {
			wrong = append(wrong, fmt.Sprintf("%s is %q (%s) with %v at the end of data", in.name, d.State, d.Reason, k))
		}
	}
	return wrong
}

// restsWell reports whether everything of an input without an end is settled. A trainer that is
// told to end may hold a piece of Pulsar without a record. That piece becomes pending again, and
// no trainer is left to read it.
func restsWell(d *headracev1.Dataset, records int) bool {
	k := d.Counts
	return d.State == "running" && settledOf(d) == int64(records) && k.GetAcked() == k.GetSettled() && (k.GetPending() == 0 || d.Unit != "records")
}

// goroutines gives the number of goroutines in the master's own profile, and the profile. 0: the
// master did not answer.
func (b *books) goroutines(ctx context.Context) (n int, text string) {
	job, err := asked(ctx, b.api.Job, &headracev1.JobRequest{})
	if err != nil {
		return 0, ""
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+job.Http+"/debug/pprof/goroutine?debug=1", nil)
	if err == nil {
		err = b.master.Authorize(request)
	}
	if err != nil {
		return 0, ""
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = reply.Body.Close() }()
	body, _ := io.ReadAll(reply.Body)
	_, _ = fmt.Sscanf(string(body), "goroutine profile: total %d", &n)
	return n, strings.TrimSpace(string(body))
}
