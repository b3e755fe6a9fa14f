package main

import (
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
)

func specFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "YAML `file` of one or more datasets, as often as there are files; - is standard input")
	if err := cmd.MarkFlagFilename("file", "yaml", "yml"); err != nil {
		panic(err)
	}
}

// readSpecs reads all files, in their order, before anything is done with one. verb is for the hint.
func (a *app) readSpecs(verb string, files []string) ([]dataset.Document, error) {
	example := "as in `" + verb + " -f clicks.yaml`"
	if len(files) == 0 || slices.Contains(files, "") {
		return nil, advice.Usage.Errorf(example, "-f names no file")
	}
	if first := slices.Index(files, "-"); first >= 0 && slices.Contains(files[first+1:], "-") {
		return nil, advice.Usage.Errorf("", "-f - is given twice, and there is one standard input")
	}
	var all []dataset.Document
	in := map[string]string{} // the file of each dataset
	for _, file := range files {
		docs, err := a.readSpec(file)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if first, twice := in[d.Spec.Name]; twice {
				return nil, advice.Usage.Errorf("leave one of them out, or give it another name", "dataset %s is in %s and in %s", d.Spec.Name, first, file)
			}
		}
		for _, d := range docs {
			in[d.Spec.Name] = file
		}
		all = append(all, docs...)
	}
	return all, nil
}

func (a *app) readSpec(file string) ([]dataset.Document, error) {
	if isData(file) {
		return nil, isNoSpec(file)
	}
	if file == "-" {
		text, err := io.ReadAll(io.LimitReader(a.in, 2<<20))
		if err != nil {
			return nil, err
		}
		folder, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		return dataset.Documents(text, "standard input", folder)
	}
	return dataset.ReadFile(file)
}
