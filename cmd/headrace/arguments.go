package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/starter"
	"github.com/headrace/headrace/internal/suggest"
)

// asUsage gives wrong arguments of every verb exit code 2 and a hint. A verb that only has
// verbs below it shows its help, and refuses a word that is none of them.
func asUsage(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE = noSuchVerb, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			if _, done := errors.AsType[*advice.Error](err); done {
				return err
			}
			if takesSpec := cmd.Flags().Lookup("file") != nil; takesSpec && isYAML(args) {
				return advice.Usage.Errorf("`"+cmd.CommandPath()+" -f "+args[0]+"`", "%s takes the file of a spec with -f", cmd.CommandPath())
			} else if takesSpec && len(args) > 0 && isData(args[0]) {
				return isNoSpec(args[0])
			}
			return wrongArguments(cmd, args, err)
		}
	}
	for _, c := range cmd.Commands() {
		asUsage(c)
	}
}

// wrongArguments names the argument that is missing, or those that are too many.
func wrongArguments(cmd *cobra.Command, args []string, err error) error {
	needs, hint := argumentsOf(cmd.Use), "see `"+cmd.CommandPath()+" --help`"
	switch text := err.Error(); { // cobra's texts name no argument
	case !strings.HasPrefix(text, "accepts ") && !strings.HasPrefix(text, "requires ") && !strings.HasPrefix(text, "unknown command "):
	case len(args) < len(needs):
		return advice.Usage.Errorf("as in `"+exampleOf(cmd)+"`; "+hint, "%s needs %s", cmd.CommandPath(), strings.Join(needs[len(args):], " and "))
	case len(args) > 0 && len(needs) == 0:
		return advice.Usage.Errorf(hint, "%s takes no argument, and got %s", cmd.CommandPath(), args[0])
	case len(args) > len(needs):
		return advice.Usage.Errorf(hint, "%s takes %s only, and got %s too", cmd.CommandPath(), strings.Join(needs, " and "), args[len(needs)])
	}
	return advice.Usage.Wrap(hint, err)
}

// argumentsOf returns the arguments that a verb must have, as its usage line names them.
func argumentsOf(use string) (needs []string) {
	for _, w := range strings.Fields(use)[1:] {
		if w != strings.ToUpper(w) || w[0] == '[' || w[0] == '-' {
			break // flags and optional arguments
		}
		needs = append(needs, strings.TrimSuffix(w, "..."))
	}
	return needs
}

// exampleOf is the first of a verb's examples, or its usage line.
func exampleOf(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if line, _, _ = strings.Cut(line, "  "); line != "" {
		return line
	}
	return strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + cmd.Use
}

func isYAML(args []string) bool {
	return len(args) > 0 && (strings.HasSuffix(args[0], ".yaml") || strings.HasSuffix(args[0], ".yml"))
}

// isData reports whether a file is the user's data and no spec: by its name. A spec may be JSON.
func isData(name string) bool {
	st, err := os.Stat(name)
	return err == nil && !st.IsDir() && starter.IsData(name)
}

// isNoSpec is the error for a data file in the place of a spec.
func isNoSpec(name string) error {
	return advice.Usage.Errorf("`headrace init "+name+"` writes a spec for it and a program", "%s is data, and a spec is wanted here", name)
}

// isProgram refuses a program that is not on PATH, before a master is started for it.
func isProgram(name string) error {
	if strings.Contains(name, "/") {
		return nil // a path may be relative to another folder, in which the program starts
	}
	_, err := exec.LookPath(name)
	if !errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	hint := "write the command after --, as in `headrace run -- python train.py`"
	if near := suggest.Closest(name, []string{"python", "python3", "torchrun", "accelerate"}); near != "" {
		if _, err := exec.LookPath(near); near == "python" && err != nil {
			near = "python3"
		}
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return advice.NotFound.Errorf(hint, "there is no program %s on PATH", name)
}
