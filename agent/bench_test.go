package agent_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/toymaster"
	"github.com/headrace/headrace/sources"
)

// memory is a source of records of one size that cost nothing to read. So the benchmark
// measures only how records are decoded, cut into batches and sent.
type memory struct {
	sources.Source
	size  int64
	arena []byte
}

func (m *memory) Close() error { return nil }

func (m *memory) Open(_ context.Context, r sources.Range, from sources.Position, _ []byte) (sources.Cursor, error) {
	at := (from.Offset + m.size - 1) / m.size * m.size
	return &memoryCursor{m: m, at: at, end: r.End}, nil
}

type memoryCursor struct {
	m       *memory
	at, end int64
}

func (c *memoryCursor) Close() error { return nil }

func (c *memoryCursor) Next(_ context.Context, b *sources.Batch) error {
	b.Reset()
	if c.at >= c.end {
		return io.EOF
	}
	b.Arena = c.m.arena
	for i := int64(0); c.at < c.end && (i+1)*c.m.size <= int64(len(c.m.arena)); i++ {
		next := c.at + c.m.size
		b.Recs = append(b.Recs, sources.Record{Offset: c.at, Next: min(next, c.end), Value: [2]int32{int32(i * c.m.size), int32((i + 1) * c.m.size)}})
		c.at = next
	}
	b.End = min(c.at, c.end)
	return nil
}

func benchmarkFeed(b *testing.B, size, rows int, track bool) {
	spec, err := dataset.Parse([]byte("name: raw\nfiles: {root: /}\ndecode: {format: raw, columns: [{name: v, path: $value, dtype: bytes}]}\n"), "")
	if err != nil {
		b.Fatal(err)
	}
	t := &testing.T{}
	total := int64(1) << 46
	m := &master{t: t, spec: spec, changed: make(chan struct{}), toy: toymaster.New("shared", toymaster.Segment{Start: 0, End: total})}
	m.toy.Units = 256 << 20
	m.serve("127.0.0.1:0")
	defer m.stop()
	conn := m.conn()
	defer conn.Close()
	src := &memory{size: int64(size), arena: make([]byte, 1<<20)}
	socket := b.TempDir() + "/a.sock"
	a, err := agent.New(agent.Config{Name: "bench", Conn: conn, Socket: socket, Version: "bench",
		Open: func(context.Context, *dataset.Spec) (sources.Source, error) { return src, nil }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	<-a.Ready()
	tr, err := hello(socket, frame.Hello{WorldSize: 1})
	if err != nil {
		b.Fatal(err)
	}
	tr.unshared = true
	s, err := tr.open(1, frame.Open{Dataset: "raw", Rows: uint32(rows), Ack: "step", Track: track})
	if err != nil {
		b.Fatal(err)
	}
	go func() { // answers to steps
		for range tr.in {
		}
	}()
	c := tr.control
	if err := s.credit(2); err != nil {
		b.Fatal(err)
	}
	const frames = 2 << 20
	window, held := uint32(2), uint32(2)
	var buf []byte
	got := int64(0)
	take := func() {
		h, err := frame.ReadHeader(s.data)
		if err != nil {
			b.Fatal(err)
		}
		if h.Type != frame.TypeFrame {
			b.Fatalf("%s", h.Type)
		}
		if err := frame.ReadPayload(s.data, h, &buf); err != nil {
			b.Fatal(err)
		}
		got += int64(h.Length)
		held -= h.Number
		s.through += h.Number
		if track {
			step := int64(s.through)
			_ = frame.WriteControl(c, frame.TypeStep, 1, 0, frame.Step{Step: &step, Batches: h.Number, Through: s.through})
		}
		window = max(2, 2*uint32(frames/2/max(1, size*rows)))
		if held <= window/2 {
			_ = s.credit(window - held)
			held = window
		}
	}
	for range 200 { // until the agent knows the trainer's pace
		take()
	}
	got = 0
	b.ResetTimer()
	for b.Loop() {
		for start := got; got-start < 64<<20; {
			take()
		}
	}
	b.SetBytes(got / int64(b.N))
}

func BenchmarkFeed(b *testing.B) {
	for _, c := range []struct{ size, rows int }{{4096, 256}, {1024, 64}, {256, 1024}} {
		for _, track := range []bool{true, false} {
			b.Run(fmt.Sprintf("record=%d/rows=%d/track=%v", c.size, c.rows, track), func(b *testing.B) { benchmarkFeed(b, c.size, c.rows, track) })
		}
	}
}
