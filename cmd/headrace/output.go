package main

import (
	"io"

	"github.com/headrace/headrace/internal/terminal"
)

// show prints v as --output asks.
func (a *app) show(v any, table func(w io.Writer)) error {
	return terminal.Write(a.out, a.cfg.Output, v, table)
}
