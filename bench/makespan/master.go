package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"github.com/headrace/headrace/sources"
	"google.golang.org/protobuf/proto"
)

const (
	commit      = 2 * time.Millisecond // fsync of a batch of replies
	segmentSize = 1_000_000            // records in a file
	listAhead   = 64                   // files listed at a time
)

// master is the real core of the shard service. Its store takes `commit` to write. The input is one
// partition of files.
type master struct {
	*clock
	core     *shardsvc.Core
	decoder  wire.Decoder
	encoder  wire.Encoder
	fx       shardsvc.Effects
	records  int64
	listed   int64 // records in the files listed so far
	nodes    map[shardsvc.Session]*node
	nextWake int64
	grants   int
	steals   int
}

// newMaster makes a master whose leases have at most `largest` records, if that is not 0.
func newMaster(c *clock, s *scenario, largest int64) *master {
	m := &master{clock: c, records: s.records, nodes: map[shardsvc.Session]*node{}, core: shardsvc.New(shardsvc.Config{Job: "bench", Model: "shared"}),
		encoder: wire.Encoder{Job: "bench", Model: "shared", TTL: 5000}, decoder: wire.Decoder{Job: "bench", Model: "shared", Now: func() int64 { return c.now / int64(time.Millisecond) }}}
	m.step(&shardsvc.Start{})
	if largest == 0 {
		largest = 1 << 30
	}
	m.step(&shardsvc.ApplyDataset{ID: m.core.NextDataset(), Name: "clicks", Options: shardsvc.Options{
		Passes: 1, Target: shardsvc.Time(2 * time.Second), Initial: min(2*s.rows, largest), Min: min(s.rows/8, largest), Max: largest,
		Unit: "records", // the defaults for files, with 256 bytes for a record
	}})
	m.step(&shardsvc.AddPartition{Dataset: 1, Number: m.core.NextPartition(), Identity: "files:clicks"})
	m.step(&shardsvc.PartitionsListed{Dataset: 1})
	m.list()
	return m
}

// list tells the core the next files, as discovery does when it is asked.
func (m *master) list() {
	var segments []sources.Segment
	for len(segments) < listAhead && m.listed < m.records {
		n := min(segmentSize, m.records-m.listed)
		segments = append(segments, sources.Segment{ID: m.listed / segmentSize, Start: 0, End: n, Sealed: true})
		m.listed += n
	}
	m.step(&shardsvc.AddSegments{Partition: 1, Segments: segments, Complete: m.listed == m.records})
}

// step gives one event to the core, commits, and sends the replies.
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
	for _, s := range m.replies() {
		m.after(commit+oneWay, func() { m.tell(s.to, s.batch.Messages(0)) })
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

// replies gathers the replies to each session.
func (m *master) replies() []said {
	var out []said
	for i := range m.fx.Replies {
		r := &m.fx.Replies[i]
		if r.Kind == shardsvc.ReplyGrant {
			m.grants++
		}
		at := slices.IndexFunc(out, func(s said) bool { return s.to == r.To })
		if at < 0 {
			at = len(out)
			out = append(out, said{to: r.To})
		}
		out[at].batch.Add(&m.encoder, r, m.fx.Pieces)
	}
	return out
}

type said struct {
	to    shardsvc.Session
	batch wire.Batch
}

// tell sends messages of the master to a node.
func (m *master) tell(to shardsvc.Session, messages [][]byte) {
	for _, b := range messages {
		msg := &pb.MasterMessage{}
		if err := proto.Unmarshal(b, msg); err != nil {
			panic(err)
		}
		m.nodes[to].step(&hold.Received{Message: msg})
	}
}

// message handles a message of a node. Its SentAt is echoed when it is durable.
func (m *master) message(from shardsvc.Session, b []byte) {
	in := &wire.Message{}
	if err := m.decoder.Decode(b, in); err != nil {
		panic(err)
	}
	in.Event.Session = from
	m.step(&in.Event)
	var echo wire.Batch
	m.after(commit+oneWay, func() { m.tell(from, echo.Messages(int64(in.Event.SentAt))) })
}
