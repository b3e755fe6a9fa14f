// Package terminal writes values for people and for programs: as a table, as JSON
// or as YAML. It knows nothing of Headrace. Package internal/view says which
// columns a table has; cmd/headrace says where it goes.
//
//	form.go    one value as a table, JSON or YAML
//	table.go   columns, aligned
//	amount.go  numbers, sizes, times, shares and bars
//	cell.go    a decoded value in a cell: clipped, without control bytes
//	screen.go  what a program that repaints the terminal writes to it
package terminal
