package serve

import (
	"reflect"
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// anyCut is one that a core could freeze: settled ranges of a line that is cut
// into segments, or of a shuffled one.
func anyCut(t *rapid.T, model string) *shardsvc.Cut {
	c := &shardsvc.Cut{ID: rapid.Uint64Min(1).Draw(t, "id"), Epoch: rapid.Uint32().Draw(t, "epoch"), Generation: rapid.Uint32().Draw(t, "generation"),
		Rank: shardsvc.Group, Step: rapid.Int64Min(0).Draw(t, "step"), Order: rapid.Uint64Max(1<<62-1).Draw(t, "order"), World: rapid.Uint32Min(1).Draw(t, "world"), Exact: model != "shared" || rapid.Bool().Draw(t, "exact")}
	if model == "private" {
		c.Rank = int64(rapid.Uint32().Draw(t, "rank"))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "datasets") {
		d := shardsvc.CutDataset{Name: string(rune('a' + i)), Unit: "bytes", Shuffle: rapid.Bool().Draw(t, "shuffled")}
		if d.Shuffle {
			d.Seed, d.Block = rapid.Uint64().Draw(t, "seed"), rapid.Int64Range(1, 50).Draw(t, "block")
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "partitions") {
			d.Partitions = append(d.Partitions, anyPartition(t, &d, j))
		}
		c.Datasets = append(c.Datasets, d)
	}
	return c
}

func anyPartition(t *rapid.T, d *shardsvc.CutDataset, n int) shardsvc.CutPartition {
	p := shardsvc.CutPartition{Number: uint32(n), Identity: "files:" + string(rune('a'+n)), Complete: true}
	line, blocks := []shardsvc.Place{}, int64(0)
	for i := range rapid.Int64Range(1, 4).Draw(t, "segments") {
		g := sources.Segment{ID: i * 2, Start: rapid.Int64Range(0, 50).Draw(t, "start"), Sealed: true, Name: "f", Locator: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "locator")}
		g.End = g.Start + rapid.Int64Range(0, 60).Draw(t, "size")
		p.Segments = append(p.Segments, g)
		for at := g.Start; at < g.End; at++ {
			line = append(line, shardsvc.Place{Segment: g.ID, Offset: at})
		}
		if d.Shuffle {
			blocks += (g.End - g.Start + d.Block - 1) / d.Block
		}
	}
	if d.Shuffle {
		line = line[:0]
		for at := range blocks * d.Block {
			line = append(line, shardsvc.Place{Offset: at})
		}
	}
	if len(line) == 0 {
		return p
	}
	if p.PassesDone = uint32(rapid.IntRange(0, 2).Draw(t, "done")); p.PassesDone > 0 {
		p.Done.Acked = int64(p.PassesDone) * int64(len(line))
		p.Records = anyRecords(t, p.Done.Acked)
	}
	ps := shardsvc.CutPass{Pass: p.PassesDone}
	at := rapid.IntRange(0, len(line)-1).Draw(t, "low")
	ps.Low, ps.Units.Acked = line[at], int64(at)
	ps.Records = anyRecords(t, ps.Units.Acked)
	for at += 1; at < len(line); {
		end := min(at+rapid.IntRange(1, 40).Draw(t, "run"), len(line))
		last := line[end-1]
		ps.Ranges = append(ps.Ranges, shardsvc.CutRange{Start: line[at], End: shardsvc.Place{Segment: last.Segment, Offset: last.Offset + 1},
			Kind: rapid.SampledFrom([]shardsvc.Kind{shardsvc.Acked, shardsvc.Excluded, shardsvc.Dropped}).Draw(t, "kind")})
		at = end + rapid.IntRange(1, 20).Draw(t, "gap")
	}
	p.Passes = append(p.Passes, ps)
	p.Excluded = append(p.Excluded, shardsvc.CutExcluded{Pass: 0, Segment: line[0].Segment, Start: line[0].Offset, End: line[0].Offset + 1, Units: 1, Kind: "lost", Reason: "why", When: 7})
	return p
}

func anyRecords(t *rapid.T, units int64) shardsvc.Tally {
	n := shardsvc.Tally{Rows: rapid.Int64Range(0, units).Draw(t, "rows"), Untold: rapid.Int64Range(0, units).Draw(t, "untold")}
	if n.Rows > 0 && rapid.Bool().Draw(t, "have times") {
		n.Oldest = rapid.Int64Range(1, 1<<42).Draw(t, "oldest")
		n.Newest = n.Oldest + rapid.Int64Range(0, 1<<42).Draw(t, "longer")
	}
	return n
}

// settledUnits lists every unit of a pass's ranges: ranges that were cut at the
// borders of segments are others, what they say is not.
func settledUnits(p *shardsvc.CutPartition, ps *shardsvc.CutPass, shuffled bool) map[shardsvc.Place]shardsvc.Kind {
	out := map[shardsvc.Place]shardsvc.Kind{}
	add := func(segment, start, end int64, kind shardsvc.Kind) {
		for at := start; at < end; at++ {
			out[shardsvc.Place{Segment: segment, Offset: at}] = kind
		}
	}
	for _, r := range ps.Ranges {
		if shuffled {
			add(0, r.Start.Offset, r.End.Offset, r.Kind)
			continue
		}
		for _, g := range p.Segments {
			start, end := g.Start, g.End
			if g.ID < r.Start.Segment || g.ID > r.End.Segment {
				continue
			}
			if g.ID == r.Start.Segment {
				start = r.Start.Offset
			}
			if g.ID == r.End.Segment {
				end = r.End.Offset
			}
			add(g.ID, start, end, r.Kind)
		}
	}
	return out
}

func TestACutIsTheSameAfterAManifest(t *testing.T) {
	for _, model := range []string{"replicated", "private", "shared"} {
		t.Run(model, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := anyCut(t, model)
				texts := &bodies{job: "j", model: model}
				text, err := texts.of(c)
				if err != nil {
					t.Fatal(err)
				}
				parsed, err := manifest.ParseCut(text)
				if err != nil {
					t.Fatal(err)
				}
				got, err := coreCut(parsed, "j", model)
				if err != nil {
					t.Fatal(err)
				}
				for i := range c.Datasets {
					for j := range c.Datasets[i].Partitions {
						p, q := &c.Datasets[i].Partitions[j], &got.Datasets[i].Partitions[j]
						for k := range p.Passes {
							shuffled := c.Datasets[i].Shuffle
							if a, b := settledUnits(p, &p.Passes[k], shuffled), settledUnits(q, &q.Passes[k], shuffled); !reflect.DeepEqual(a, b) {
								t.Fatalf("%d/%d pass %d: %d units settled, after it %d", i, j, k, len(a), len(b))
							}
							p.Passes[k].Ranges, q.Passes[k].Ranges = nil, nil
						}
					}
				}
				if !reflect.DeepEqual(got, c) {
					t.Fatalf("after the manifest:\n%+v\nbefore:\n%+v", got, c)
				}
			})
		})
	}
}

func TestACutOfAnotherJobOrModelIsRefused(t *testing.T) {
	c := wireCut(&shardsvc.Cut{ID: 1, Rank: shardsvc.Group, World: 1, Exact: true}, "mine", "replicated")
	for want, of := range map[string][2]string{"of job \"mine\"": {"yours", "replicated"}, "of a replicated model": {"mine", "private"}} {
		if _, err := coreCut(c, of[0], of[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", of, err, want)
		}
	}
}

// A body becomes bytes when it is sent, alone in its message, in its turn.
func TestAnAnswerWithACutKeepsItsPlaceAmongReplies(t *testing.T) {
	o := newOutbox(1 << 20)
	e := &encoder{}
	texts := &bodies{job: "j", model: "replicated"}
	ack := func(prefix int64) {
		o.add(shardsvc.ReplyAck, e.encode(&shardsvc.Reply{Kind: shardsvc.ReplyAck, Prefix: prefix}, nil))
	}
	answer := func(id uint64, cut *shardsvc.Cut) {
		r := &shardsvc.Reply{Kind: shardsvc.ReplyCut, Worker: 1, Request: id, Cut: &shardsvc.CutAnswer{Cut: cut.ID, Body: cut}}
		o.addCut(&cutReply{wireReply(r), cut, texts})
	}
	good := &shardsvc.Cut{ID: 9, Rank: shardsvc.Group, World: 2, Step: 130, Exact: true}
	bad := &shardsvc.Cut{ID: 10, Rank: shardsvc.Group, Step: -1}
	ack(1)
	answer(5, good)
	ack(2)
	if !o.publish() {
		t.Fatal("full")
	}
	answer(6, bad)
	o.batchEcho = 77
	if !o.publish() {
		t.Fatal("full")
	}
	var seen []string
	echo := int64(0)
	for _, m := range decodeAll(t, o) {
		for range m.Acks {
			seen = append(seen, "ack")
		}
		for _, r := range m.CutReplies {
			seen = append(seen, r.Code.String())
			if r.Id == 5 {
				c, err := manifest.ParseCut(r.Body)
				if err != nil || c.Step != 130 || r.Cut != 9 {
					t.Errorf("%+v %v", r, err)
				}
			} else if !strings.Contains(r.Reason, "can not write the cut down") || len(r.Body) > 0 {
				t.Errorf("%+v", r)
			}
		}
		echo = max(echo, m.Echo)
	}
	if strings.Join(seen, " ") != "ack OK ack REFUSED" || echo != 77 {
		t.Errorf("%v, echo %d", seen, echo)
	}
	if o.bytes != 0 {
		t.Errorf("%d bytes are left in an empty outbox", o.bytes)
	}
}

func TestAnOutboxIsFullOfCutsToo(t *testing.T) {
	o := newOutbox(3 * cutReplyBytes)
	for i := range 4 {
		o.addCut(&cutReply{})
		if o.publish() != (i < 3) {
			t.Fatalf("answer %d", i)
		}
	}
}

// A call whose cut can not be read is refused in its turn: the stream is that of
// all trainers of the agent.
func TestACallThatCanNotBeReadIsRefusedAndNoCallIsMissed(t *testing.T) {
	cut := wireCut(&shardsvc.Cut{ID: 4, Rank: shardsvc.Group, World: 1, Exact: true}, "j", "replicated")
	text, err := cut.Encode()
	if err != nil {
		t.Fatal(err)
	}
	restore := func(body []byte, mode headracev1.Restore_Mode) *headracev1.CutCall_Restore {
		return &headracev1.CutCall_Restore{Restore: &headracev1.Restore{Mode: mode, Body: body, Path: "/p", Failed: []uint64{3}}}
	}
	b, err := proto.Marshal(&headracev1.AgentMessage{Calls: []*headracev1.CutCall{
		{Worker: 1, Id: 1, Call: &headracev1.CutCall_Ask{Ask: &headracev1.CutAsk{Cut: 7, Step: 3, Carried: true, Path: "/x", DeadlineMs: 1500, Exact: true}}},
		{Worker: 1, Id: 2, Call: &headracev1.CutCall_Bind{Bind: &headracev1.CutBind{Cut: 7, Path: "/x"}}},
		{Worker: 1, Id: 3, Call: &headracev1.CutCall_Drop{Drop: &headracev1.CutDrop{Cut: 7, Reason: "over"}}},
		{Worker: 1, Id: 4, Call: restore(text, headracev1.Restore_EXACT)},
		{Worker: 1, Id: 5, Call: restore(nil, headracev1.Restore_NEWEST)},
		{Worker: 2, Id: 6, Call: restore(text[:20], headracev1.Restore_NEWEST)},
		{Worker: 2, Id: 7, Call: restore(nil, 9)},
		{Worker: 2, Id: 8},
	}})
	if err != nil {
		t.Fatal(err)
	}
	in := newInbound(&stream{})
	defer in.free()
	in.job, in.model = "j", "replicated"
	if err := in.decode(b); err != nil {
		t.Fatal(err)
	}
	want := []shardsvc.CutCall{
		{Worker: 1, ID: 1, Ask: &shardsvc.CutAsk{Cut: 7, Step: 3, Carried: true, Path: "/x", Deadline: 1500 * shardsvc.Millisecond, Exact: true}},
		{Worker: 1, ID: 2, Bind: &shardsvc.CutBind{Cut: 7, Path: "/x"}},
		{Worker: 1, ID: 3, Drop: &shardsvc.CutDrop{Cut: 7, Reason: "over"}},
		{Worker: 1, ID: 4, Restore: &shardsvc.RestoreCall{Mode: shardsvc.RestoreExact, Cut: &shardsvc.Cut{ID: 4, Rank: shardsvc.Group, World: 1, Exact: true}, Path: "/p", Failed: []uint64{3}}},
		{Worker: 1, ID: 5, Restore: &shardsvc.RestoreCall{Mode: shardsvc.RestoreNewest, Path: "/p", Failed: []uint64{3}}},
	}
	if !reflect.DeepEqual(in.msg.Calls, want) {
		t.Errorf("calls:\n%+v\nwant:\n%+v", in.msg.Calls, want)
	}
	var refused []uint64
	for _, k := range in.badCalls {
		r := k.refuse(3)
		if r.To != 3 || r.Cut.Code != shardsvc.CutRefused || r.Reason == "" || r.Worker != 2 {
			t.Errorf("%+v", r)
		}
		refused = append(refused, r.Request)
	}
	if !reflect.DeepEqual(refused, []uint64{6, 7, 8}) {
		t.Errorf("refused: %v", refused)
	}
}
