// Clickreport computes the quick start's report from a folder that `headrace demo --keep --dir FOLDER`
// has left. It contains no code of Headrace but the report, so you can check the demo with it.
//
//	go run ./internal/proof/demo/report/clickreport FOLDER
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/headrace/headrace/internal/proof/demo/report"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clickreport FOLDER")
		os.Exit(2)
	}
	folders := report.Folders{Truth: filepath.Join(os.Args[1], "truth"), Journals: filepath.Join(os.Args[1], "journals")}
	for _, name := range []string{"group", "careful"} { // internal/proof/demo's rivals
		if dir := filepath.Join(os.Args[1], name); exists(dir) {
			folders.Groups = append(folders.Groups, dir)
		}
	}
	r, err := folders.Compute()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clickreport:", err)
		os.Exit(1)
	}
	r.Print(os.Stdout)
	if !r.Clean {
		os.Exit(1)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
