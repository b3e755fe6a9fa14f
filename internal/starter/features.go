package starter

import (
	"context"
	"fmt"
	"strings"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/internal/tfrecord"
)

// isTFRecord reports whether a file begins with a record of TensorFlow's.
func isTFRecord(ctx context.Context, open func(context.Context) (*part, error)) bool {
	f, err := open(ctx)
	if err != nil {
		return false
	}
	defer f.close()
	head := make([]byte, tfrecord.Head)
	if _, err := f.ReadAt(head, 0); err != nil {
		return false
	}
	_, _, ok := tfrecord.Length(head)
	return ok
}

// lookAtFeatures reads the first records of TFRecord files. A feature that never has more than
// one value becomes a plain column, any other one a list.
func (p *Plan) lookAtFeatures(ctx context.Context, folder string, open sample.Opener) (*table, error) {
	spec, err := p.parse(p.source()+"decode:\n  format: tfrecord\n  columns: [{name: value, path: $value, dtype: bytes}]\n", folder)
	if err != nil {
		return nil, err
	}
	records, err := sample.Records(ctx, spec, open, lookedAt)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, advice.NotFound.Errorf("", "%s has no record: there is nothing to look at", p.About)
	}
	t := &table{layout: layout{format: "tfrecord"}, rows: len(records)}
	at := map[string]*field{}
	for i, r := range records {
		features, err := decode.ExampleFeatures(r.Value)
		if err != nil {
			return nil, advice.Failed.Errorf("for other data in TFRecord files write the spec by hand, with path: $value",
				"%s, record %d %w", p.About, i, err)
		}
		for _, one := range features {
			name := one.Name
			if one.Steps {
				name += "\x00"
			}
			f := at[name]
			if f == nil {
				f = &field{name: one.Name}
				f.seen.ragged = one.Steps
				at[name] = f
				t.fields = append(t.fields, f)
			}
			f.seen.ragged = f.seen.ragged || len(one.Values) > 1
			for _, v := range one.Values {
				f.seen.cell(v)
			}
		}
	}
	for name, f := range at {
		f.path = featurePath(f.name, f.seen.ragged, strings.HasSuffix(name, "\x00"))
		if !f.seen.ragged {
			f.seen.missing += len(records) - f.seen.total
			f.seen.total = len(records)
		}
	}
	return t, nil
}

func featurePath(name string, list, steps bool) string {
	pointer := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	if name == "*" {
		pointer = "/~2"
	}
	switch {
	case steps:
		return pointer + "/*/*"
	case list:
		return pointer + "/*"
	case name == "" || strings.ContainsAny(name[:1], "/$"):
		return pointer
	}
	return name
}

// tfrecordEnding returns ".tfrecord-*" for train.tfrecord-00000-of-00010.
func tfrecordEnding(base string) (end string, ok bool) {
	for _, s := range []string{".tfrecord", ".tfrecords"} {
		var i, n int
		if _, after, found := strings.Cut(base, s+"-"); found {
			if k, _ := fmt.Sscanf(after, "%d-of-%d", &i, &n); k == 2 {
				return s + "-*", true
			}
		}
	}
	return "", false
}
