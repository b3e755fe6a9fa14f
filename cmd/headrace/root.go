package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/internal/connection"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/proof/demo"
	"github.com/headrace/headrace/internal/suggest"
)

// app is what all verbs share.
type app struct {
	in       io.Reader
	out, err io.Writer
	stops    *stops

	file string // --config
	cfg  *config.Config

	connections *connection.Book
}

var (
	everywhere = []string{"job", "state", "master", "output", "log_level", "log_format", "tls_cert", "tls_key", "tls_ca", "token_file"}
	ofMaster   = []string{"listen", "http", "model", "session_ttl", "lost_after", "allow_root", "allow_broker", "landing_storage", "landing_connection", "role", "role_token"}
	ofAgent    = []string{"name", "socket", "buffer", "replicas", "peer_listen", "replica_bandwidth"}
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "headrace",
		Short: "Records to trainers in small leased shards, every one accounted for",
		Long: `Headrace gives training workers their records in small leased shards. It takes
shards back from workers that die, and knows for each record who has it.

  headrace demo                                  see it work, and survive kills
  headrace init data/clicks.csv                  a spec and a program for your own data
  headrace run -f clicks.yaml -- python train.py read your own files
  headrace top                                   watch it

Settings come from flags, else HEADRACE_* variables, else one YAML file.
The verbs of ` + "`headrace dataset`" + ` work without that word too: headrace list.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchVerb,
		Version:       version,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetIn(a.in)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 { // a mistyped verb: the flag belongs to the verb that was meant
			return noSuchVerb(cmd, words)
		}
		hint := "see `" + cmd.CommandPath() + " --help`"
		if name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --"); unknown {
			var flags []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
			if near := suggest.Closest(name, flags); near != "" {
				hint = "did you mean --" + near + "?"
			}
		}
		invalid, isValue := errors.AsType[*pflag.InvalidValueError](err)
		if number, is := errors.AsType[*strconv.NumError](err); is && isValue {
			return advice.Usage.Errorf(hint, "--%s: %q is no number that this flag takes", invalid.GetFlag().Name, number.Num)
		}
		return advice.Usage.Wrap(hint, err)
	})
	pf := root.PersistentFlags()
	pf.SortFlags = false
	pf.StringVar(&a.file, "config", "", "settings file (default ./"+config.DefaultFile+", if it is there)")
	config.AddFlags(pf, nil, everywhere...)
	complete(root, "output", "table", "json", "yaml")
	complete(root, "log-level", "debug", "info", "warn", "error")
	complete(root, "log-format", "text", "json")

	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "look", Title: "Look and change:"})
	for _, cmd := range []*cobra.Command{a.initCommand(), a.upCommand(), a.runCommand(), a.masterCommand(), a.agentCommand(), demo.Command()} {
		cmd.GroupID = "run"
		root.AddCommand(cmd)
	}
	for _, cmd := range []*cobra.Command{a.pushCommand(), a.datasetCommand(), a.statusCommand(), a.topCommand(), a.deadletterCommand(), a.ckptCommand(), a.auditCommand(), a.rewindCommand(), a.reclaimCommand()} {
		cmd.GroupID = "look"
		root.AddCommand(cmd)
	}
	for _, cmd := range a.datasetVerbs() { // short forms
		if cmd.Name() != "status" {
			cmd.Hidden = true
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(a.versionCommand())
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	asUsage(root)
	return root
}

// helpCommand is cobra's, but refuses a word that is not a verb.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Help about any verb",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (verbs []string, _ cobra.ShellCompDirective) {
			of, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, c := range of.Commands() {
				if c.IsAvailableCommand() {
					verbs = append(verbs, c.Name()+"\t"+c.Short)
				}
			}
			return verbs, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err != nil {
				return advice.Usage.Wrap("", err)
			}
			if of.HasSubCommands() {
				if err := noSuchVerb(of, rest); err != nil {
					return err
				}
			}
			of.InitDefaultHelpFlag()
			of.InitDefaultVersionFlag()
			return of.Help()
		},
	}
}

// noSuchVerb refuses a word that is not a verb, and names the verb that was probably
// meant.
func noSuchVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, c := range cmd.Commands() {
		verbs = append(verbs, c.Name())
	}
	if suggest.Closest(args[0], append(verbs, "train")) == "train" {
		return advice.Usage.Errorf("trainers are started with `headrace run -- python train.py`", "%s has no verb %s", cmd.CommandPath(), args[0])
	}
	return advice.Usage.Errorf(suggest.Hint(args[0], verbs, "verbs"), "%s has no verb %s", cmd.CommandPath(), args[0])
}

// load reads the settings for cmd.
func (a *app) load(cmd *cobra.Command, defaults map[string]string) error {
	cfg, err := config.Load(config.Places{Flags: cmd.Flags(), Env: os.LookupEnv, Environ: os.Environ(), File: a.file, Defaults: defaults})
	if err != nil {
		return advice.Usage.Wrap("", err)
	}
	a.cfg = cfg
	return a.connect(cfg.AllowBrokers)
}

// connect registers the operator's connections, and the brokers that allow_broker lists.
func (a *app) connect(brokers []string) (err error) {
	if a.connections, err = connection.Parse(a.cfg.Connections, a.cfg.ConnectionsFile, brokers); err != nil {
		return advice.Usage.Wrap("", err)
	}
	return nil
}

// logger writes to stderr.
func (a *app) logger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: a.cfg.LogLevel}
	if a.cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.err, opts))
	}
	return slog.New(slog.NewTextHandler(a.err, opts))
}

// client is a connection to the master for one verb.
type client struct {
	headracev1.DatasetsClient
	conn   *grpc.ClientConn
	target link.Target
}

func (c *client) close() { _ = c.conn.Close() }

func (a *app) dial() (*client, error) {
	t := a.cfg.Target()
	conn, err := link.Dial(t, a.cfg.TLS)
	if err != nil {
		return nil, advice.Usage.Wrap("", err)
	}
	return &client{headracev1.NewDatasetsClient(conn), conn, t}, nil
}

// withMaster loads the settings, dials, and turns errors into words.
func (a *app) withMaster(do func(cmd *cobra.Command, c *client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd, nil); err != nil {
			return err
		}
		c, err := a.dial()
		if err != nil {
			return err
		}
		defer c.close()
		return advice.FromMaster(do(cmd, c, args), c.target)
	}
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag that is not there: a mistake in the program
	}
}
