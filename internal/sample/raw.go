package sample

import (
	"bytes"
	"context"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/sources"
)

// Raw is a record before anything is decoded.
type Raw struct {
	Value  []byte
	Offset int64
}

// Records are the first n records of a dataset. Tombstones are left out.
func Records(ctx context.Context, spec *dataset.Spec, open Opener, n int) (all []Raw, err error) {
	r, err := openReader(spec, open)
	if err != nil {
		return nil, err
	}
	defer r.close()
	err = r.walk(ctx, func(_ string, _ *decode.Decoder, b *sources.Batch) error {
		for _, rec := range b.Recs {
			if len(all) == n {
				return errEnough
			}
			if !rec.Tombstone {
				all = append(all, Raw{bytes.Clone(b.Arena[rec.Value[0]:rec.Value[1]]), rec.Offset})
			}
		}
		return nil
	})
	return all, err
}

// Values are the rows' cells, in the order of the columns: numbers, bools, strings, lists, or nil where one is missing.
func (v *Rows) Values() [][]any { return v.rows }
