package sample

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/sources"
)

// Try refuses a spec whose files, topics or offsets are not there, or whose fields are not
// in the files' first line or path. It reads no more than first lines.
func Try(ctx context.Context, spec *dataset.Spec, src sources.Source) error {
	parts, err := src.Partitions(ctx)
	if err != nil {
		return err
	}
	bounds, err := src.Bounds(ctx, parts)
	if err != nil {
		return err
	}
	for _, b := range bounds {
		if b.Err != nil {
			return b.Err
		}
	}
	dec, err := decode.Compile(spec, decode.WithSchemas(decode.SchemasOf(src)))
	if err != nil {
		return err
	}
	return checkFirst(ctx, src, parts, spec, dec)
}

// checkFirst looks at the first segment of each partition. That shows an offset that
// is not there, and a first line or a path without what the spec names.
func checkFirst(ctx context.Context, src sources.Source, parts []sources.PartitionID, spec *dataset.Spec, dec *decode.Decoder) error {
	all, err := sources.FirstSegments(ctx, src, parts, 1)
	if err != nil {
		return err
	}
	for i, p := range parts {
		for _, s := range all[i] {
			if err := dec.In(s.Name); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			if !spec.Decode.Header {
				continue
			}
			if err := checkHeader(ctx, src, p, s, dec); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkHeader(ctx context.Context, src sources.Source, p sources.PartitionID, s sources.Segment, dec *decode.Decoder) error {
	r := sources.Range{Partition: p, Segment: s.ID, Start: s.Start, End: s.End}
	cur, err := src.Open(ctx, r, sources.Position{Segment: s.ID, Offset: s.Start}, s.Locator)
	if err != nil {
		return err
	}
	defer func() { _ = cur.Close() }()
	if _, err := bindFile(dec, cur, s); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}
