package dataset

import "github.com/headrace/headrace/internal/suggest"

// Nearest returns the known name that was probably meant, or "".
func Nearest(name string, known []string) string { return suggest.Closest(name, known) }
