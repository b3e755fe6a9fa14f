package wire

import (
	"errors"
	"fmt"
	"math"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// One request may ask for maxCount leases, and all requests of a message together for
// maxCounts. So one message costs the loop at most some 100 ms.
const (
	maxCount  = 4096
	maxCounts = 1 << 16
)

// Decoder reads the messages of agents for one master.
type Decoder struct {
	Job, Model string       // the master's: cuts of others are refused
	Now        func() int64 // wall time in ms since 1970
}

var errWire = errors.New("not a protocol buffer")

// Decode appends the content of b, one AgentMessage, to m. Acks, requests and steps come
// with every batch and are read by hand. Generated code reads the rest, one field at a
// time.
func (d *Decoder) Decode(b []byte, m *Message) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		if num == 2 && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errWire
			}
			m.Event.SentAt = shardsvc.Time(v)
			b = b[n:]
			continue
		}
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return errWire
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return errWire
		}
		if err := d.field(m, num, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return limit(m.Event.Requests)
}

// limit lowers the counts of requests to maxCounts leases in all. Each request keeps at
// least one.
func limit(requests []shardsvc.LeaseRequest) error {
	if len(requests) > maxCounts {
		return fmt.Errorf("%d lease requests in one message, at most %d", len(requests), maxCounts)
	}
	left := uint32(maxCounts - len(requests))
	for i := range requests {
		more := min(requests[i].Count-1, left)
		requests[i].Count = 1 + more
		left -= more
	}
	return nil
}

func (d *Decoder) field(m *Message, num protowire.Number, v []byte) error {
	e := &m.Event
	switch num {
	case 5:
		e.Acks = append(e.Acks, shardsvc.Ack{})
		return decodeAck(v, &e.Acks[len(e.Acks)-1])
	case 6:
		e.Steps = append(e.Steps, shardsvc.StepReport{})
		return decodeStep(v, &e.Steps[len(e.Steps)-1])
	case 13:
		e.Requests = append(e.Requests, shardsvc.LeaseRequest{})
		return decodeRequest(v, &e.Requests[len(e.Requests)-1])
	}
	return d.rare(m, num, v)
}

// fields calls each for every field of a message that has varints, doubles and messages.
func fields(b []byte, each func(num protowire.Number, typ protowire.Type, varint uint64, msg []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errWire
		}
		b = b[n:]
		var (
			v   uint64
			msg []byte
		)
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			msg, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errWire
		}
		if err := each(num, typ, v, msg); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func decodeAck(b []byte, a *shardsvc.Ack) error {
	return fields(b, func(num protowire.Number, typ protowire.Type, v uint64, msg []byte) error {
		switch {
		case num == 1 && typ == protowire.BytesType:
			return decodeToken(msg, &a.Token)
		case num == 7 && typ == protowire.BytesType:
			return decodeTally(msg, a)
		case typ != protowire.VarintType:
		case num == 2:
			a.Prefix = int64(v)
		case num == 4:
			a.Step = int64(v)
		case num == 6:
			a.From = int64(v)
		}
		return nil
	})
}

func decodeTally(b []byte, a *shardsvc.Ack) error {
	a.Told = true
	return fields(b, func(num protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
		if typ == protowire.VarintType {
			switch num {
			case 1:
				a.Rows = int64(v)
			case 2:
				a.Oldest = int64(v)
			case 3:
				a.Newest = int64(v)
			}
		}
		return nil
	})
}

func decodeToken(b []byte, t *shardsvc.Token) error {
	return fields(b, func(num protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
		if typ == protowire.VarintType {
			switch num {
			case 1:
				t.Epoch = uint32(v)
			case 2:
				t.Term = uint32(v)
			case 3:
				t.Sequence = v
			}
		}
		return nil
	})
}

func decodeStep(b []byte, s *shardsvc.StepReport) error {
	return fields(b, func(num protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
		if typ == protowire.VarintType {
			switch num {
			case 1:
				s.Worker = uint32(v)
			case 2:
				s.Step = int64(v)
			}
		}
		return nil
	})
}

func decodeRequest(b []byte, r *shardsvc.LeaseRequest) error {
	err := fields(b, func(num protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
		switch {
		case num == 4 && typ == protowire.Fixed64Type:
			r.Rate = rate(math.Float64frombits(v))
		case num == 7 && typ == protowire.Fixed64Type:
			r.BackfillRate = rate(math.Float64frombits(v))
		case typ != protowire.VarintType:
		case num == 1:
			r.ID = v
		case num == 2:
			r.Worker = uint32(v)
		case num == 3:
			r.Dataset = uint32(v)
		case num == 5:
			r.Count = uint32(v)
		case num == 6:
			r.Virtual = uint32(v)
		}
		return nil
	})
	r.Count = min(max(r.Count, 1), maxCount)
	return err
}

// rate returns f, the rate of a worker, or 0 (unknown) if f is no usable number.
func rate(f float64) float64 {
	if f > 0 && f <= math.MaxFloat32 {
		return f
	}
	return 0
}

// rare reads the fields that come now and then.
func (d *Decoder) rare(m *Message, num protowire.Number, v []byte) error {
	e := &m.Event
	switch num {
	case 1:
		return m.hello(v)
	case 3:
		return rareField(v, &e.Joins, func(p *headracev1.Join) shardsvc.Join {
			return shardsvc.Join{Worker: p.Worker, Rank: p.Rank, Incarnation: p.Incarnation, WorldSize: p.WorldSize, Generation: p.Generation, Pid: p.Pid, Resume: resume(p.Resume), MadeAt: shardsvc.Time(p.MadeAt)}
		})
	case 4:
		return rareField(v, &e.Held, func(p *headracev1.Held) shardsvc.Held {
			return shardsvc.Held{Token: Token(p.Token), Worker: p.Worker, Dataset: p.Dataset, Partition: p.Partition, Pass: p.Pass,
				Segment: p.Segment, Start: p.LeaseStart, End: p.LeaseEnd, Frontier: p.Frontier}
		})
	case 7:
		return rareField(v, &e.Answers, func(p *headracev1.StealAnswer) shardsvc.StealAnswer {
			return shardsvc.StealAnswer{Token: Token(p.Token), Refused: p.Refused, At: p.At}
		})
	case 8:
		return rareField(v, &e.Releases, func(p *headracev1.Release) shardsvc.Release {
			if p.Reason != "" {
				m.Notes = append(m.Notes, Note{Token: Token(p.Token), Why: p.Reason})
			}
			return shardsvc.Release{Token: Token(p.Token), Prefix: p.Prefix}
		})
	case 9:
		return rareField(v, &e.Failures, func(p *headracev1.ReadFailure) shardsvc.ReadFailure {
			f := shardsvc.ReadFailure{Token: Token(p.Token), At: p.At, Permanent: p.Permanent, Away: p.Kind == headracev1.KindAway, Kind: p.Kind, Message: p.Message}
			if x := p.Lost; x != nil {
				f.Lost, f.When = &shardsvc.LostRange{Segment: x.Segment, Start: x.Start, End: x.End}, d.Now()
			}
			for _, x := range p.Bad {
				f.When = d.Now()
				f.Bad = append(f.Bad, shardsvc.BadRecord{Segment: x.Segment, Start: x.Start, End: x.End, Column: x.Column, Kind: x.Kind, Reason: x.Reason,
					Value: x.Value, Key: x.Key, Size: x.Size, Form: x.Form})
			}
			return f
		})
	case 10:
		return rareField(v, &e.Leaves, func(p *headracev1.Leave) shardsvc.Leave {
			if p.Detail != "" {
				m.Notes = append(m.Notes, Note{Worker: p.Worker, Why: p.Detail})
			}
			return shardsvc.Leave{Worker: p.Worker, Reason: leaveReason(p.Reason), Ended: p.Ended, Crash: crash(p.Crash)}
		})
	case 11:
		return rareField(v, &e.Status, func(p *headracev1.WorkerStatus) shardsvc.WorkerStatus {
			return shardsvc.WorkerStatus{Worker: p.Worker, Paused: p.Paused, WaitSeconds: p.WaitSeconds, StepSeconds: p.StepSeconds, RowsYielded: p.RowsYielded}
		})
	case 12:
		return rareField(v, &e.Heads, func(p *headracev1.Head) shardsvc.Head {
			return shardsvc.Head{Partition: p.Partition, Segment: p.Segment, End: p.End, Sealed: p.Sealed}
		})
	case 14:
		return d.cutCall(m, v)
	case 15:
		return rareField(v, &e.Yields, func(p *headracev1.YieldsPaused) shardsvc.YieldsPaused {
			return shardsvc.YieldsPaused{Worker: p.Worker, Cut: p.Cut, Untracked: p.Untracked}
		})
	case 16:
		return rareField(v, &e.Rounds, func(p *headracev1.RoundReport) shardsvc.RoundReport {
			return shardsvc.RoundReport{Worker: p.Worker, Dataset: p.Dataset, Series: p.Series, Through: p.Through, More: p.More, Drained: p.Drained,
				Newest: p.Newest, Closed: p.Closed, Again: p.Again, Told: p.Told, ToldLast: p.ToldLast, Endless: p.Endless,
				MaxWait: shardsvc.Time(p.MaxWaitMs) * shardsvc.Millisecond, Rows: p.Rows, ToldRows: p.ToldRows, Drop: p.Drop, Done: p.Done,
				Virtual: p.Virtual}
		})
	}
	return nil // a newer agent's field
}

func crash(c *headracev1.Crash) *shardsvc.Crash {
	if c == nil {
		return nil
	}
	out := &shardsvc.Crash{Alone: c.Alone}
	for _, s := range c.Suspects {
		out.Suspects = append(out.Suspects, shardsvc.Suspect{Dataset: s.Dataset, Partition: s.Partition, Pass: s.Pass, Segment: s.Segment, Start: s.Start, End: s.End})
	}
	return out
}

func resume(r headracev1.Join_Resume) shardsvc.Resume {
	if r < 0 || r > headracev1.Join_START {
		return shardsvc.ResumeDefault
	}
	return shardsvc.Resume(r)
}

// rareField decodes one message by generated code, converts it and appends it to into.
func rareField[T any, P interface {
	*T
	proto.Message
}, E any](b []byte, into *[]E, to func(P) E) error {
	p := P(new(T))
	if err := proto.Unmarshal(b, p); err != nil {
		return err
	}
	*into = append(*into, to(p))
	return nil
}

// Token converts a token from its message.
func Token(t *headracev1.Token) shardsvc.Token {
	return shardsvc.Token{Epoch: t.GetEpoch(), Term: t.GetTerm(), Sequence: t.GetSequence()}
}

func leaveReason(r headracev1.Leave_Reason) shardsvc.LeaveReason {
	if r < 0 || r > headracev1.Leave_LOST {
		return shardsvc.LeaveUnknown
	}
	return shardsvc.LeaveReason(r)
}

func (m *Message) hello(b []byte) error {
	var h headracev1.Hello
	if err := proto.Unmarshal(b, &h); err != nil {
		return err
	}
	m.About = &About{
		Name: h.Agent, Job: h.Job, Version: h.Version, Host: h.Host,
		Protocol: h.Protocol, Pid: h.Pid, Gpus: h.Gpus,
	}
	m.Event.Hello = &shardsvc.Hello{Agent: h.Agent, Incarnation: h.Incarnation, Clock: h.Clock}
	return nil
}
