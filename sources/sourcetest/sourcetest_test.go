package sourcetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

// memory is a source that is like a broker: it has two partitions, offsets count records, and every seventh
// offset has no record. fault makes it break one promise.
type memory struct {
	log   *[2][][]byte
	fault string
}

// memoryPlace is the place of its records.
type memoryPlace struct{ memory }

const memoryFault = "HEADRACE_SOURCETEST_FAULT"

func (m memoryPlace) Produce(_ testing.TB, records [][]byte) {
	for i, r := range records {
		p := &m.log[i%2]
		if len(*p)%7 == 6 {
			*p = append(*p, nil)
		}
		*p = append(*p, r)
	}
}

func (m memoryPlace) Open(testing.TB, []sources.Segment) sources.Source { return m.memory }

func (m memory) Close() error { return nil }

func (m memory) Partitions(context.Context) ([]sources.PartitionID, error) {
	return []sources.PartitionID{"0", "1"}, nil
}

func (m memory) number(p sources.PartitionID) (int, error) {
	if p != "0" && p != "1" {
		return 0, fmt.Errorf("no partition %s", p)
	}
	return int(p[0] - '0'), nil
}

func (m memory) Bounds(_ context.Context, parts []sources.PartitionID) ([]sources.Bounds, error) {
	var all []sources.Bounds
	for _, p := range parts {
		n, err := m.number(p)
		all = append(all, sources.Bounds{Partition: p, Head: sources.Position{Offset: int64(len(m.log[n]))}, Err: err})
	}
	return all, nil
}

func (m memory) Segments(ctx context.Context, p sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	n, err := m.number(p)
	if err != nil || ctx.Err() != nil || after >= 0 || most < 1 {
		return nil, errors.Join(err, ctx.Err())
	}
	locator := binary.BigEndian.AppendUint64(nil, uint64(n))
	return []sources.Segment{{ID: 0, End: int64(len(m.log[n])), Locator: locator, Name: "memory"}}, nil
}

func (m memory) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	n, err := m.number(r.Partition)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	if len(locator) != 8 {
		return nil, errors.New("damaged locator")
	}
	c := &memoryCursor{log: m.log[n], at: max(r.Start, from.Offset), end: r.End, fault: m.fault}
	switch m.fault {
	case "repeat":
		c.end = min(c.end+1, int64(len(c.log)))
	case "lose":
		c.at = max(c.at, min(r.Start+1, r.End))
	case "leak":
		go func() { select {} }()
	}
	return c, nil
}

type memoryCursor struct {
	log     [][]byte
	at, end int64
	fault   string
}

func (c *memoryCursor) Close() error { return nil }

func (c *memoryCursor) Next(ctx context.Context, b *sources.Batch) error {
	if err := ctx.Err(); err != nil && c.fault != "deaf" {
		return err
	}
	b.Reset()
	if c.fault == "shared" {
		b.Arena = sharedArena[:0]
	}
	for ; c.at < c.end && len(b.Recs) < 10; c.at++ {
		r := c.log[c.at]
		if r == nil {
			if n := len(b.Recs); n > 0 {
				b.Recs[n-1].Next = c.at + 1
			}
			continue
		}
		from := len(b.Arena)
		b.Arena = append(b.Arena, r...)
		if c.fault == "damage" {
			b.Arena[len(b.Arena)-10] ^= 1
		}
		b.Recs = append(b.Recs, sources.Record{Offset: c.at, Next: c.at + 1, Value: [2]int32{int32(from), int32(len(b.Arena))}})
	}
	if b.End = c.at; len(b.Recs) == 0 {
		return io.EOF
	}
	return nil
}

var sharedArena = make([]byte, 0, 1<<20)

func TestASourceInMemoryPassesTheSuite(t *testing.T) {
	Run(t, Harness{Count: 20_000, New: func(testing.TB) Place {
		return memoryPlace{memory{log: new([2][][]byte), fault: os.Getenv(memoryFault)}}
	}})
}

// A source that breaks a promise must fail the suite, at the test that is named after the promise. Each runs in
// a process of its own.
func TestTheSuiteCatchesASourceThatBreaksAPromise(t *testing.T) {
	for fault, caught := range map[string]string{
		"repeat": "HoweverARangeIsSplitTheRecordsAreTheSame",
		"lose":   "WhatIsProducedIsReadOnceAndInOrder",
		"damage": "EachOfManyRecordsComesOnceAndUndamaged",
		"shared": "ABatchStaysAsItIsUntilTheNextCall",
		"deaf":   "ACancelledContextEndsReadingAndLeavesNothingBehind",
		"leak":   "ACancelledContextEndsReadingAndLeavesNothingBehind",
	} {
		t.Run(fault, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestASourceInMemoryPassesTheSuite/"+caught+"$")
			cmd.Env = append(os.Environ(), memoryFault+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestASourceInMemoryPassesTheSuite/"+caught) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestATextIsFoundBehindAnyBytes(t *testing.T) {
	for _, before := range []string{"", "rec:", "\xa9rec:7:x\x00", "rec:1:zz:00000000:cer"} {
		if i, err := number(append([]byte(before), text(503, "zz")...)); i != 503 || err != nil {
			t.Errorf("after %q: %d, %v", before, i, err)
		}
	}
	for _, bad := range []string{"", "rec:", ":cer", "rec:1:cer", ":12345678:cer"} {
		if i, err := number([]byte(bad)); err == nil {
			t.Errorf("%q was read as %d", bad, i)
		}
	}
}
