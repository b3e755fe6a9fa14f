package demo

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/proof/demo/pushconsumer"
)

// pushConsumer is the rival's side of RocketMQ, a process of its own: its trainers
// start it and read what it writes.
func pushConsumer() *cobra.Command {
	var o pushconsumer.Options
	cmd := &cobra.Command{
		Use:    "push-consumer",
		Short:  "RocketMQ's official client, which writes what it is given to standard output until standard input ends",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() { // ends with the process that started us
				_, _ = io.Copy(io.Discard, os.Stdin)
				cancel()
			}()
			return pushconsumer.Run(ctx, o, os.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.NameServer, "name-server", "", "host:port")
	f.StringVar(&o.Topic, "topic", "", "what to consume")
	f.StringVar(&o.Group, "group", "", "whose offsets are committed")
	f.StringVar(&o.Instance, "instance", "", "of this process in the group")
	f.BoolVar(&o.Tuned, "tuned", false, "not the library's defaults")
	f.StringVar(&o.After, "after", "", "with --tuned: what stands between the bodies of one call")
	return cmd
}
