// Package clicks carries the click-through-rate trainer inside the binary, so
// that `headrace demo` works without a checkout.
package clicks

import _ "embed"

// Trainer is train.py.
//
//go:embed train.py
var Trainer []byte
