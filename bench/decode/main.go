package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
)

func main() {
	dataset.Register(files.Kind)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "decode:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("give a command: generate or read")
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	format := fs.String("format", "tsv", "tsv or json")
	records := fs.Int("records", 400000, "records to generate")
	seed := fs.Uint64("seed", 1, "seed of the records")
	rows := fs.Int("rows", 1024, "rows of a batch")
	spec := fs.String("spec", "", "the dataset, as for headrace up -f")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case fs.NArg() != 1:
		return errors.New("give exactly one file")
	case args[0] == "generate":
		f, err := os.Create(fs.Arg(0))
		if err != nil {
			return err
		}
		if err := generate(f, *format, *records, *seed); err != nil {
			return err
		}
		return f.Close()
	case args[0] == "read":
		return read(fs.Arg(0), *spec, *rows)
	}
	return fmt.Errorf("unknown command %q: use generate or read", args[0])
}

// batchesPerFrame makes frames of about 1 MiB, as the agent does.
const batchesPerFrame = 4

// read decodes the file into frames and prints rows, seconds and CPU seconds.
func read(name, specName string, rows int) error {
	docs, err := dataset.ReadFile(specName)
	if err != nil {
		return err
	}
	d, err := decode.Compile(docs[0].Spec)
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	start, cpu := time.Now(), cpuSeconds()
	total, bytes, err := frames(f, d, rows)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"rows": total, "seconds": time.Since(start).Seconds(), "cpu_seconds": cpuSeconds() - cpu, "bytes": bytes,
	})
}

func frames(r io.Reader, d *decode.Decoder, rows int) (total, size int, err error) {
	b, err := d.NewBuilder(rows * batchesPerFrame)
	if err != nil {
		return 0, 0, err
	}
	send := func() error {
		payload, err := b.Finish(frame.Head{RowsPerBatch: rows, FirstBatch: 1}, []frame.Span{{Rows: uint32(b.Rows())}})
		if err != nil {
			return err
		}
		total, size = total+b.Rows(), size+len(payload)
		b.Reset()
		return nil
	}
	err = batches(r, func(batch *sources.Batch) error {
		for at := 0; at < len(batch.Recs); {
			n, err := d.Append(b, batch, at, b.Limit())
			if err != nil {
				return err
			}
			if at += n; b.Rows() == b.Limit() {
				if err := send(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && b.Rows() > 0 {
		err = send()
	}
	return total, size, err
}

// batches cuts a file of lines into records, 256 KiB at a time.
func batches(r io.Reader, each func(*sources.Batch) error) error {
	var batch sources.Batch
	arena, kept := make([]byte, 256<<10), 0
	for {
		n, err := io.ReadFull(r, arena[kept:])
		full := arena[:kept+n]
		batch.Reset()
		at := 0
		for {
			i := bytes.IndexByte(full[at:], '\n')
			if i < 0 {
				break
			}
			batch.Recs = append(batch.Recs, sources.Record{Offset: int64(at), Value: [2]int32{int32(at), int32(at + i)}})
			at += i + 1
		}
		batch.Arena = full
		if err := each(&batch); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		case at == 0:
			return errors.New("a line is longer than the buffer")
		}
		kept = copy(arena, full[at:])
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
