// Command overlay writes the source files with the planted bugs in them, for `make test-planted`. Run it
// in the root of the repository.
package main

import (
	"fmt"
	"os"

	"github.com/headrace/headrace/internal/proof/planted"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: overlay FOLDER")
		os.Exit(2)
	}
	bugs, err := planted.Bugs()
	if err == nil {
		err = planted.Overlay(".", os.Args[1], bugs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
