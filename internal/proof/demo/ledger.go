package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/proof/child"
)

// poll is how often the master is asked while a release is measured. It is the resolution of release_ms.
const poll = 10 * time.Millisecond

const applyWithin = 2 * time.Minute

// ledger asks the master questions that any tool may ask.
type ledger struct {
	conn *grpc.ClientConn
	api  headracev1.DatasetsClient
}

func newLedger(address, state string) (*ledger, error) {
	creds, err := link.Target{Address: address, State: state}.Credentials(link.TLS{})
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{ // a killed master is back soon
			Backoff:           backoff.Config{BaseDelay: poll, Multiplier: 1.2, MaxDelay: 5 * poll},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, err
	}
	return &ledger{conn: conn, api: headracev1.NewDatasetsClient(conn)}, nil
}

func (l *ledger) close() { _ = l.conn.Close() }

// waitForMaster returns when the master answers.
func (l *ledger) waitForMaster(ctx context.Context) error {
	_, err := l.api.Job(ctx, &headracev1.JobRequest{}, grpc.WaitForReady(true))
	return err
}

// waitForAgent returns when the master knows agent name as process pid.
func (l *ledger) waitForAgent(ctx context.Context, name string, pid int) error {
	return l.waitFor(ctx, func(job *headracev1.JobReply) bool {
		return slices.ContainsFunc(job.Agents, func(a *headracev1.AgentState) bool {
			return a.Name == name && int(a.Pid) == pid && a.Session == "live"
		})
	})
}

// waitForTrainer returns when process pid of a rank has read something, so it has finished its start.
func (l *ledger) waitForTrainer(ctx context.Context, rank, pid int) error {
	return l.waitFor(ctx, func(job *headracev1.JobReply) bool {
		return slices.ContainsFunc(job.Workers, func(w *headracev1.WorkerState) bool {
			return int(w.Rank) == rank && int(w.Pid) == pid && w.RowsYielded > 0
		})
	})
}

// waitFor returns when `is` is true of the job.
func (l *ledger) waitFor(ctx context.Context, is func(*headracev1.JobReply) bool) error {
	for {
		job, err := l.api.Job(ctx, &headracev1.JobRequest{}, grpc.WaitForReady(true))
		if err != nil || is(job) {
			return err
		}
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
}

// apply tries until the source answers: on a busy machine a broker that has just started may need longer
// than the master waits for it.
func (l *ledger) apply(ctx context.Context, yaml string) error {
	again, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	for {
		_, err := l.api.Apply(ctx, &headracev1.ApplyRequest{Yaml: yaml}, grpc.WaitForReady(true))
		if status.Code(err) != codes.FailedPrecondition || pause(again, time.Second) != nil {
			return err
		}
	}
}

// settled returns how much of the dataset is settled, of how much: bytes of files, or records of a topic.
// -1: it is not known.
func (l *ledger) settled(ctx context.Context) (settled, listed int64, err error) {
	d, err := l.api.Describe(ctx, &headracev1.DescribeRequest{Name: datasetName})
	if err != nil {
		return 0, 0, err
	}
	c := d.GetCounts()
	if d.Unit == "entries" { // how many records they hold is not known before they are read
		return d.GetRecords().GetRows(), -1, nil
	}
	return c.GetSettled(), c.GetListed(), nil
}

// lease is one lease, as the master describes it.
type lease struct {
	partition, pass uint32
	segment         int64
	prefix, end     int64
	agent           string
	rank            uint32
	token           [3]uint64
}

func (l *ledger) leases(ctx context.Context) ([]lease, error) {
	var all []lease
	page := ""
	for {
		reply, err := l.api.State(ctx, &headracev1.StateRequest{Name: datasetName, PageToken: page})
		if err != nil {
			return nil, fmt.Errorf("asking for leases: %w", err)
		}
		for _, p := range reply.Partitions {
			for _, s := range p.Lease {
				all = append(all, lease{
					partition: p.Number, pass: p.Pass, segment: s.Segment, prefix: s.Prefix, end: s.End,
					agent: s.Agent, rank: s.Rank,
					token: [3]uint64{uint64(s.Token.GetEpoch()), uint64(s.Token.GetTerm()), s.Token.GetSequence()},
				})
			}
		}
		if page = reply.NextPageToken; page == "" {
			return all, nil
		}
	}
}

// overlaps reports whether two leases share a record.
func (a lease) overlaps(b lease) bool {
	return a.partition == b.partition && a.pass == b.pass && a.segment == b.segment &&
		a.prefix < b.end && b.prefix < a.end
}

// firstGrant asks until a lease is new by isNew, and returns the time at which it was seen. It returns 0
// if ctx ended before. It goes on asking if the master does not answer.
func (l *ledger) firstGrant(ctx context.Context, isNew func(lease) bool) int64 {
	for {
		all, err := l.leases(ctx)
		if err == nil {
			for _, s := range all {
				if isNew(s) {
					return child.Monotonic()
				}
			}
		}
		if pause(ctx, poll) != nil {
			return 0
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
