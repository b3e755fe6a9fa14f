package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/view"
)

func (a *app) datasetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dataset",
		Short:   "Datasets: apply, list, describe, peek, check, pause, resume, delete, status",
		Aliases: []string{"datasets", "ds"},
	}
	cmd.AddCommand(a.datasetVerbs()...)
	return cmd
}

func (a *app) datasetVerbs() []*cobra.Command {
	return []*cobra.Command{
		a.applyCommand(), a.listCommand(), a.describeCommand(), a.peekCommand(), a.checkCommand(),
		a.pauseCommand(), a.resumeCommand(), a.deleteCommand(), a.statusCommand(),
	}
}

// callTimeout bounds one question to a master that is there but does not answer.
const callTimeout = 15 * time.Second

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create datasets from a YAML file, or change what may change",
		Example: `  headrace dataset apply -f clicks.yaml
  headrace dataset apply -f clicks.yaml --dry-run    what would change`,
		Args: cobra.NoArgs,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, _ []string) error {
			docs, err := a.readSpecs(cmd.CommandPath(), files)
			if err != nil {
				return err
			}
			results, err := applyAll(cmd.Context(), c, docs, dryRun)
			if err != nil {
				return err
			}
			return a.show(results, func(w io.Writer) {
				for _, r := range results {
					r.Write(w)
				}
			})
		}),
	}
	specFlag(cmd, &files)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	return cmd
}

func applyAll(ctx context.Context, c *client, docs []dataset.Document, dryRun bool) ([]view.Applied, error) {
	results := []view.Applied{}
	for _, d := range docs {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		r, err := c.Apply(ctx, &headracev1.ApplyRequest{Yaml: string(d.YAML), DryRun: dryRun})
		cancel()
		if err != nil {
			return nil, advice.FromMaster(err, c.target)
		}
		results = append(results, view.Applied{Name: d.Spec.Name, Outcome: strings.ToLower(r.Outcome.String()), DryRun: dryRun, Diff: r.Diff})
	}
	return results, nil
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "The job's datasets",
		Args:    cobra.NoArgs,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			reply, err := c.List(ctx, &headracev1.ListRequest{})
			if err != nil {
				return err
			}
			views := []view.Dataset{}
			for _, d := range reply.Datasets {
				views = append(views, view.DatasetOf(d))
			}
			return a.show(views, func(w io.Writer) {
				if len(views) == 0 {
					fmt.Fprintln(w, "no datasets; make one with `headrace dataset apply -f FILE`")
					return
				}
				view.DatasetTable(views).Write(w)
			})
		}),
	}
}

func (a *app) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "describe NAME",
		Short:             "One dataset: its state and its spec",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			v, err := view.AskDescription(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.show(v, v.Write)
		}),
	}
}

func (a *app) pauseCommand() *cobra.Command {
	return a.change("pause", "Grant no more of a dataset; what is leased is finished", "paused",
		func(ctx context.Context, c *client, name string) error {
			_, err := c.Pause(ctx, &headracev1.PauseRequest{Name: name})
			return err
		})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.change("resume", "Go on with a paused or failed dataset", "resumed",
		func(ctx context.Context, c *client, name string) error {
			_, err := c.Resume(ctx, &headracev1.ResumeRequest{Name: name})
			return err
		})
}

func (a *app) change(verb, short, outcome string, do func(context.Context, *client, string) error) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME",
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			if err := do(ctx, c, args[0]); err != nil {
				return err
			}
			return a.show(view.Changed{Name: args[0], Outcome: outcome}, func(w io.Writer) { fmt.Fprintf(w, "dataset %s %s\n", args[0], outcome) })
		}),
	}
}

func (a *app) deleteCommand() *cobra.Command {
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Forget a dataset and everything known of its records",
		Long: `Forgets a dataset: its progress, its leases, its settled records. The files
themselves are never touched. If you apply it again, it starts from the beginning.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDatasets,
		RunE: a.withMaster(func(cmd *cobra.Command, c *client, args []string) error {
			return a.delete(cmd.Context(), c, args[0], dryRun, yes)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be forgotten, and forget nothing")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) delete(ctx context.Context, c *client, name string, dryRun, yes bool) error {
	ask := func(dry bool) (*headracev1.DeleteReply, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return c.Delete(ctx, &headracev1.DeleteRequest{Name: name, DryRun: dry})
	}
	reply, err := ask(true)
	if err != nil {
		return err
	}
	v := view.Deleted{Name: name, DryRun: dryRun, Leases: reply.Leases, Counts: view.CountsOf(reply.Counts), AtSource: reply.AtSource}
	if !dryRun {
		if err := a.confirm(ctx, v.Question(), yes); err != nil {
			return err
		}
		if _, err := ask(false); err != nil {
			return err
		}
		v.Deleted = true
	}
	return a.show(v, v.Write)
}
