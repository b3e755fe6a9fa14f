package main

import (
	"maps"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/agent/supervise"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/jobfile"
)

// isJobFile reports whether the first argument of run is the file of a job, not a program:
// it stands before --, and has roles.
func isJobFile(cmd *cobra.Command, args []string) bool {
	return isYAML(args) && cmd.ArgsLenAtDash() != 0 && jobfile.Is(args[0])
}

// readJob reads the file of a job. Flags win over it, and a command after -- over its own.
// It gives the defaults of the settings and the command of the tasks.
func (f *runFlags) readJob(cmd *cobra.Command, args []string) (defaults map[string]string, command []string, err error) {
	job, err := jobfile.Read(args[0])
	if err != nil {
		return nil, nil, advice.Usage.Wrap("", err)
	}
	for _, flag := range []string{"nproc-per-node", "nnodes", "node-rank"} {
		if cmd.Flags().Changed(flag) {
			return nil, nil, advice.Usage.Errorf("write the counts in the file; its tasks run on this machine", "--%s does not go with the roles of %s", flag, args[0])
		}
	}
	f.job, f.files = job, append(f.files, job.Specs...)
	if !cmd.Flags().Changed("max-restarts") {
		f.maxRestarts = job.MaxRestarts
	}
	if command = args[1:]; len(command) == 0 {
		command = job.Command
	}
	for _, r := range job.Roles {
		if len(command) == 0 && len(r.Command) == 0 {
			return nil, nil, advice.Usage.Errorf("as in `command: [python, train.py]`", "%s names no command for %s", args[0], r.Name)
		}
	}
	defaults = maps.Clone(trainersFirst)
	if job.Model != "" {
		defaults["model"] = job.Model
	}
	return defaults, command, nil
}

func (f *runFlags) roles() []supervise.Role {
	if f.job == nil {
		return nil
	}
	var out []supervise.Role
	for _, r := range f.job.Roles {
		out = append(out, supervise.Role{Name: r.Name, Count: r.Count, Cmd: r.Command, Env: r.Env})
	}
	return out
}

func (f *runFlags) env() []string {
	if f.job == nil {
		return nil
	}
	return f.job.Env
}

func (f *runFlags) dir() string {
	if f.job == nil {
		return ""
	}
	return f.job.Folder
}
