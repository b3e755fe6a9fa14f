package demo

import (
	"context"
	"io"
)

// Options are the flags of `headrace demo`.
type Options struct {
	Records int
	Seed    uint64
	Dir     string // "" : temporary
	Keep    bool
	Report  string // JSON file
	Kills   bool
	Python  string
}

// Run runs the demo and writes its story to out.
func Run(ctx context.Context, o Options, out io.Writer) error {
	return ctx.Err()
}
