package demo

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/proof/demo/pushconsumer"
)

// pushConsumer runs RocketMQ's official client as a process of its own. The trainers of the group that
// we compare with start it and read its output.
func pushConsumer() *cobra.Command {
	var o pushconsumer.Options
	cmd := &cobra.Command{
		Use:    "push-consumer",
		Short:  "RocketMQ's official client, which writes the messages that it gets to standard output until standard input ends",
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
	f.StringVar(&o.Topic, "topic", "", "topic to consume")
	f.StringVar(&o.Group, "group", "", "consumer group")
	f.StringVar(&o.Instance, "instance", "", "name of this process in the group")
	f.BoolVar(&o.Tuned, "tuned", false, "larger batches than the library's defaults")
	f.StringVar(&o.After, "after", "", "with --tuned: text between the bodies of one call")
	return cmd
}
