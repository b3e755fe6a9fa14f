package decode

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// parse reads the decode part of a spec as a user writes it.
func parse(t testing.TB, decode string) *dataset.Spec {
	t.Helper()
	text := "name: d\nfiles: {root: /data}\ndecode:\n" + indent(decode)
	spec, err := dataset.Parse([]byte(text), "d.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return spec
}

func indent(s string) string {
	var b bytes.Buffer
	for line := range bytes.Lines([]byte(s)) {
		b.WriteString("  ")
		b.Write(line)
	}
	return b.String()
}

func compile(t testing.TB, decode string, opts ...Option) *Decoder {
	t.Helper()
	d, err := Compile(parse(t, decode), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func lines(records ...string) *sources.Batch {
	return batchOf(toBytes(records)...)
}

// decodeAll returns the rows of a batch, read back from the bytes of the frame.
func decodeAll(t testing.TB, d *Decoder, batch *sources.Batch) (*frame.Frame, error) {
	t.Helper()
	b, err := d.NewBuilder(max(1, len(batch.Recs)))
	if err != nil {
		t.Fatal(err)
	}
	n, err := d.Append(b, batch, 0, len(batch.Recs))
	if err == nil && n != len(batch.Recs) {
		t.Fatalf("consumed %d records of %d", n, len(batch.Recs))
	}
	if err != nil || b.Rows() == 0 {
		return nil, err
	}
	return finish1(t, d, b), nil
}

func finish1(t testing.TB, d *Decoder, b *Builder) *frame.Frame {
	t.Helper()
	payload, err := b.Finish(frame.Head{RowsPerBatch: b.Rows(), FirstBatch: 1}, []frame.Span{{Rows: uint32(b.Rows())}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := frame.Read(d.Layout(), bytes.Clone(payload))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rowsOf returns all rows of one column.
func rowsOf(t testing.TB, f *frame.Frame, name string) []any {
	t.Helper()
	for i := range f.Columns {
		if c := &f.Columns[i]; c.Layout.Field.Name == name {
			rows := make([]any, f.Rows)
			for r := range rows {
				rows[r] = c.Row(r)
			}
			return rows
		}
	}
	t.Fatalf("no column %s", name)
	return nil
}

// seeded returns a random generator and logs its seed. HEADRACE_SEED repeats it.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("HEADRACE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("HEADRACE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// sameBits compares columns by their bytes, so that NaN equals NaN.
func sameBits(a, b []frame.Received) bool {
	for i := range a {
		x, y := &a[i], &b[i]
		if !bytes.Equal(x.Values, y.Values) || !bytes.Equal(x.Mask, y.Mask) || !slices.Equal(x.RowOffsets, y.RowOffsets) || !slices.Equal(x.Elements, y.Elements) {
			return false
		}
	}
	return len(a) == len(b)
}
