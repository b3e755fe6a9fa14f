// Columnar lists and reads a dataset of files as master and agent do, from the source to the bytes of
// frames, but without master and agent. It prints rows and CPU seconds. parquet.py and run.py run it.
//
//	columnar SPEC ROWS
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"syscall"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
)

func main() {
	dataset.Register(files.Kind)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "columnar:", err)
		os.Exit(1)
	}
}

// reader makes frames of the rows of a source.
type reader struct {
	dec   *decode.Decoder
	b     *decode.Builder
	batch sources.Batch // reused as in the agent: the next segment's rows overwrite the last one's
	rows  int           // rows of a batch
	total int
	bytes int
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("give a spec and the rows of a batch")
	}
	docs, err := dataset.ReadFile(args[0])
	if err != nil {
		return err
	}
	spec := docs[0].Spec
	r := &reader{}
	if r.rows, err = strconv.Atoi(args[1]); err != nil {
		return err
	}
	src, err := spec.Open(dataset.Opening{AllowedRoots: spec.Folders(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if r.dec, err = decode.Compile(spec); err != nil {
		return err
	}
	if r.b, err = r.dec.NewBuilder(r.rows); err != nil {
		return err
	}
	parts, err := src.Partitions(context.Background())
	if err != nil {
		return err
	}
	before := cpuSeconds()
	segments, err := src.Segments(context.Background(), parts[0], -1, 1<<20)
	if err != nil {
		return err
	}
	for _, s := range segments {
		if err := r.segment(src, parts[0], s); err != nil {
			return err
		}
	}
	if err := r.send(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"rows": r.total, "cpu_seconds": cpuSeconds() - before, "bytes": r.bytes})
}

func (r *reader) segment(src sources.Source, p sources.PartitionID, s sources.Segment) error {
	cur, err := src.Open(context.Background(), sources.Range{Partition: p, Segment: s.ID, Start: s.Start, End: s.End},
		sources.Position{Segment: s.ID, Offset: s.Start}, s.Locator)
	if err != nil {
		return err
	}
	defer func() { _ = cur.Close() }()
	for {
		if err := cur.Next(context.Background(), &r.batch); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for at := 0; at < r.batch.Len(); {
			n, err := r.dec.Append(r.b, &r.batch, at, r.rows)
			if err != nil {
				return err
			}
			if at += n; r.b.Rows() == r.rows {
				if err := r.send(); err != nil {
					return err
				}
			}
		}
	}
}

func (r *reader) send() error {
	if r.b.Rows() == 0 {
		return nil
	}
	payload, err := r.b.Finish(frame.Head{RowsPerBatch: r.rows, FirstBatch: 1}, []frame.Span{{Rows: uint32(r.b.Rows())}})
	if err != nil {
		return err
	}
	r.total, r.bytes = r.total+r.b.Rows(), r.bytes+len(payload)
	r.b.Reset()
	return nil
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
