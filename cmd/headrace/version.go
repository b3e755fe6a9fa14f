package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/link"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Version, protocol and build of this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.load(cmd, nil); err != nil {
				return err
			}
			b := link.BuildOf(version, hasNVML)
			return a.show(b, func(w io.Writer) {
				fmt.Fprintf(w, "headrace %s (protocol %d, %s, %s)\n", b.Version, b.Protocol, b.Go, b.Platform)
				modified := ""
				if b.Modified {
					modified = ", with local changes"
				}
				fmt.Fprintf(w, "commit %s %s%s\n", cmp.Or(b.Commit, "unknown"), b.Time, modified)
				if !b.NVML {
					fmt.Fprintln(w, "GPUs are not listed: this binary was built without the tag nvml")
				}
			})
		},
	}
}
