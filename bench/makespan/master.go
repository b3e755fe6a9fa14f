package main

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

const (
	commit      = 2 * time.Millisecond // fsync of a batch of replies
	segmentSize = 1_000_000            // records in a file
	listAhead   = 64                   // files listed at a time
)

// master is the real core of the shard service behind a store that takes
// `commit` to write. The input is one partition of files.
type master struct {
	*clock
	core     *shardsvc.Core
	fx       shardsvc.Effects
	records  int64
	listed   int64 // records in the files listed so far
	nodes    map[shardsvc.Session]*node
	nextWake int64
	grants   int
	steals   int
}

// newMaster's leases are at most largest records, unless that is 0.
func newMaster(c *clock, s *scenario, largest int64) *master {
	m := &master{clock: c, records: s.records, nodes: map[shardsvc.Session]*node{}, core: shardsvc.New(shardsvc.Config{Job: "bench", Model: "shared"})}
	m.step(&shardsvc.Start{})
	if largest == 0 {
		largest = 1 << 30
	}
	m.step(&shardsvc.ApplyDataset{ID: m.core.NextDataset(), Name: "clicks", Options: shardsvc.Options{
		Passes: 1, Target: shardsvc.Time(2 * time.Second), Initial: min(2*s.rows, largest), Min: min(s.rows/8, largest), Max: largest,
		Unit: "records", // as the defaults for files, with 256 bytes a record
	}})
	m.step(&shardsvc.AddPartition{Dataset: 1, Number: m.core.NextPartition(), Identity: "files:clicks"})
	m.step(&shardsvc.PartitionsListed{Dataset: 1})
	m.list()
	return m
}

// list makes the next files known, as discovery does when it is asked.
func (m *master) list() {
	var segments []sources.Segment
	for len(segments) < listAhead && m.listed < m.records {
		n := min(segmentSize, m.records-m.listed)
		segments = append(segments, sources.Segment{ID: m.listed / segmentSize, Start: 0, End: n, Sealed: true})
		m.listed += n
	}
	m.step(&shardsvc.AddSegments{Partition: 1, Segments: segments, Complete: m.listed == m.records})
}

// step runs one event through the core, commits, and sends the replies.
func (m *master) step(ev shardsvc.Event) {
	m.fx.Reset()
	wake := int64(m.core.Step(shardsvc.Time(m.now), ev, &m.fx))
	m.core.Flush(&m.fx)
	more := false
	for _, r := range m.fx.Reports {
		switch r.Kind {
		case shardsvc.ReportNeedSegments:
			more = m.listed < m.records
		case shardsvc.ReportStolen:
			m.steals++
		case shardsvc.ReportRejected, shardsvc.ReportAckRefused, shardsvc.ReportExpired, shardsvc.ReportDatasetFailed:
			panic(fmt.Sprintf("the core reports %+v", r))
		}
	}
	for to, reply := range m.replies() {
		m.after(commit+wire, func() { m.nodes[to].step(&hold.Received{Message: reply}) })
	}
	if wake > m.now && (wake < m.nextWake || m.nextWake <= m.now) {
		m.nextWake = wake
		m.at(wake, func() {
			if m.nextWake == wake {
				m.nextWake = 0
				m.step(&shardsvc.Tick{})
			}
		})
	}
	if more {
		m.list()
	}
}

// replies gathers what is said to each session.
func (m *master) replies() map[shardsvc.Session]*pb.MasterMessage {
	out := map[shardsvc.Session]*pb.MasterMessage{}
	for _, r := range m.fx.Replies {
		msg := out[r.To]
		if msg == nil {
			msg = &pb.MasterMessage{}
			out[r.To] = msg
		}
		switch r.Kind {
		case shardsvc.ReplyHello:
			msg.Hello = &pb.HelloReply{Protocol: 1, Job: "bench", Model: "shared", Term: r.Term, Epoch: r.Epoch, SessionTtlMs: 5000}
		case shardsvc.ReplyJoin:
			msg.Joins = append(msg.Joins, &pb.JoinReply{Worker: r.Worker, Refused: r.Refused, Reason: r.Reason, Generation: r.Generation, Epoch: r.Epoch, LastStep: r.Step})
		case shardsvc.ReplyAck:
			msg.Acks = append(msg.Acks, &pb.AckResult{Token: token(r.Token), Prefix: r.Prefix, Code: pb.AckResult_Code(r.Code), Reason: r.Reason})
		case shardsvc.ReplySteal:
			msg.StealAsks = append(msg.StealAsks, &pb.StealAsk{Token: token(r.Token), At: r.At})
		case shardsvc.ReplyGrant:
			m.grants++
			msg.Grants = append(msg.Grants, &pb.Grant{Request: r.Request, Token: token(r.Token), Worker: r.Worker, Dataset: r.Dataset,
				Partition: r.Partition, Pass: r.Pass, Segment: r.Segment, LeaseStart: r.Start, LeaseEnd: r.End})
		case shardsvc.ReplyStanding:
			msg.Standings = append(msg.Standings, &pb.Standing{Request: r.Request, Worker: r.Worker, Dataset: r.Dataset, State: pb.Standing_State(r.State), Reason: r.Reason})
		default:
			panic(fmt.Sprintf("the core replies %+v, which nothing here asks for", r))
		}
	}
	return out
}

func token(t shardsvc.Token) *pb.Token {
	return &pb.Token{Epoch: t.Epoch, Term: t.Term, Sequence: t.Sequence}
}

func fromToken(t *pb.Token) shardsvc.Token {
	return shardsvc.Token{Epoch: t.GetEpoch(), Term: t.GetTerm(), Sequence: t.GetSequence()}
}

// message is what arrives from a node; its SentAt is echoed when it is durable.
func (m *master) message(from shardsvc.Session, in *pb.AgentMessage) {
	msg := &shardsvc.Message{Session: from}
	if h := in.Hello; h != nil {
		msg.Hello = &shardsvc.Hello{Agent: h.Agent, Incarnation: h.Incarnation}
	}
	for _, j := range in.Joins {
		msg.Joins = append(msg.Joins, shardsvc.Join{Worker: j.Worker, Rank: j.Rank, Incarnation: j.Incarnation, WorldSize: j.WorldSize, Generation: j.Generation})
	}
	for _, a := range in.Acks {
		msg.Acks = append(msg.Acks, shardsvc.Ack{Token: fromToken(a.Token), Prefix: a.Prefix, Step: a.Step})
	}
	for _, s := range in.Steps {
		msg.Steps = append(msg.Steps, shardsvc.StepReport{Worker: s.Worker, Step: s.Step})
	}
	for _, a := range in.StealAnswers {
		msg.Answers = append(msg.Answers, shardsvc.StealAnswer{Token: fromToken(a.Token), Refused: a.Refused, At: a.At})
	}
	for _, r := range in.Releases {
		msg.Releases = append(msg.Releases, shardsvc.Release{Token: fromToken(r.Token), Prefix: r.Prefix, Reason: r.Reason})
	}
	for _, l := range in.Leaves {
		msg.Leaves = append(msg.Leaves, shardsvc.Leave{Worker: l.Worker, Reason: shardsvc.LeaveReason(l.Reason), Ended: l.Ended, Detail: l.Detail})
	}
	for _, q := range in.Requests {
		msg.Requests = append(msg.Requests, shardsvc.LeaseRequest{ID: q.Id, Worker: q.Worker, Dataset: q.Dataset, Rate: q.Rate, Count: q.Count})
	}
	m.step(msg)
	m.after(commit+wire, func() { m.nodes[from].step(&hold.Received{Message: &pb.MasterMessage{Echo: in.SentAt}}) })
}
