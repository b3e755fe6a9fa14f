package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/master"
	"github.com/headrace/headrace/sources"
)

// listSource opens datasets for a master; readSource for an agent.
func listSource(roots []string, log *slog.Logger) master.Opener {
	return func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
		return openSource(spec, roots, known, log)
	}
}

func readSource(roots []string, log *slog.Logger) agent.Opener {
	return func(_ context.Context, spec *dataset.Spec) (sources.Source, error) {
		return openSource(spec, roots, nil, log)
	}
}

func openSource(spec *dataset.Spec, roots []string, known []sources.Segment, log *slog.Logger) (sources.Source, error) {
	return spec.Open(dataset.Opening{AllowedRoots: roots, Known: known, Logger: log.With("dataset", spec.Name)})
}

// checkSpec refuses a spec at apply whose root is not allowed, whose files, topics
// or offsets are not there, or whose fields are not in the files' first line.
func checkSpec(roots []string, log *slog.Logger) func(context.Context, *dataset.Spec) error {
	return func(ctx context.Context, spec *dataset.Spec) error {
		src, err := openSource(spec.ForALook(), roots, nil, log)
		if err != nil {
			return err
		}
		defer func() { _ = src.Close() }()
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
		dec, err := decode.Compile(spec)
		if err != nil {
			return err
		}
		return checkFirst(ctx, src, parts, spec, dec)
	}
}

// checkFirst looks at the first segment of each partition. That shows an offset that
// is not there, and a first line without the fields that the spec names.
func checkFirst(ctx context.Context, src sources.Source, parts []sources.PartitionID, spec *dataset.Spec, dec *decode.Decoder) error {
	for _, p := range parts {
		segs, err := src.Segments(ctx, p, -1, 1)
		if err != nil {
			return err
		}
		for _, s := range segs {
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
	if _, err := bind(dec, cur); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// bind gives the decoder of the cursor's file: its first line may name fields.
func bind(dec *decode.Decoder, cur sources.Cursor) (*decode.Decoder, error) {
	if h, ok := cur.(sources.Headed); ok && h.Header() != nil {
		return dec.Bind(h.Header())
	}
	return dec, nil
}
