package demo

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"
)

// Command is `headrace demo`. The end of its context stops it, as Ctrl-C does.
func Command() *cobra.Command {
	o := Options{
		Records: 2_000_000,
		Seed:    1,
		Report:  cmp.Or(os.Getenv("REPORT"), "build/quickstart.json"),
		Python:  cmp.Or(os.Getenv("HEADRACE_PYTHON"), "python3"),
	}
	noKills := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Four trainers share one input and one model; a trainer, an agent and the master are killed; every record is accounted for",
		Long: `Writes a click log, starts a master, two agents and four trainers as processes
of their own, kills one of each with SIGKILL and starts it again, and ends with a
report that is computed from the trainers' own journals, without the ledger.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			o.Kills = !noKills
			return Run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Records, "records", o.Records, "records of the click log")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the click log")
	f.StringVar(&o.Dir, "dir", "", "work in this folder (default: a temporary one)")
	f.BoolVar(&o.Keep, "keep", false, "keep the log, journals, state and process outputs")
	f.StringVar(&o.Report, "report", o.Report, "file of the JSON report (default: $REPORT, else build/quickstart.json)")
	f.BoolVar(&noKills, "no-kills", false, "kill nobody")
	f.StringVar(&o.Python, "python", o.Python, "interpreter with headrace and numpy (default: $HEADRACE_PYTHON, else python3)")
	return cmd
}
