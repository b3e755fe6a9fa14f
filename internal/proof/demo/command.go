package demo

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Default numbers of records: of a log that is read as files, and of one that is produced into a topic.
const (
	fileRecords  = 2_000_000
	topicRecords = 350_000
)

// Command is `headrace demo`. The end of its context stops it, as Ctrl-C does.
func Command() *cobra.Command {
	o := Options{
		Source: Files,
		Seed:   1,
		Report: cmp.Or(os.Getenv("REPORT"), "build/quickstart.json"),
		Python: cmp.Or(os.Getenv("HEADRACE_PYTHON"), "python3"),
	}
	noKills, noGroup := false, false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Four trainers share one input and one model; a trainer, an agent and the master are killed; every record is accounted for",
		Long: `Writes a click log, starts a master, two agents and four trainers as processes
of their own, kills one of each with SIGKILL and starts it again, and ends with a
report that is computed from the trainers' own journals, without the ledger.

With --source kafka (or pulsar, rocketmq) it starts a broker of its own (needs java, and mvn
once), produces the log into a topic while the trainers read it, kills the broker
too, and runs the same trainers on the vendor's own client beside them, through the
same kills (needs confluent-kafka or pulsar-client in the same Python; RocketMQ's
client is in this program).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			if o.Source != Files && !live(o.Source) {
				return fmt.Errorf("--source %q: use %s or %s", o.Source, Files, strings.Join(slices.Sorted(maps.Keys(queues)), ", "))
			}
			o.Kills, o.Group = !noKills, !noGroup
			if o.Records == 0 {
				if o.Records = fileRecords; live(o.Source) {
					o.Records = topicRecords
				}
			}
			return Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", o.Source, "files, or the broker of a topic that is written while it is read: kafka, pulsar or rocketmq")
	f.IntVar(&o.Records, "records", 0, fmt.Sprintf("records of the click log (default %d, with a topic %d)", fileRecords, topicRecords))
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the click log")
	f.StringVar(&o.Dir, "dir", "", "work in this folder (default: a temporary one)")
	f.BoolVar(&o.Keep, "keep", false, "keep the log, journals, state and process outputs")
	f.StringVar(&o.Report, "report", o.Report, "file of the JSON report (default: $REPORT, else build/quickstart.json)")
	f.BoolVar(&noKills, "no-kills", false, "kill nobody")
	f.BoolVar(&noGroup, "no-group", false, "with a topic: run no consumer groups to compare with")
	f.StringVar(&o.Python, "python", o.Python, "interpreter with headrace and numpy (default: $HEADRACE_PYTHON, else python3)")
	cmd.AddCommand(pushConsumer())
	return cmd
}
