package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
)

// confirm asks on a terminal; elsewhere --yes is needed.
func (a *app) confirm(ctx context.Context, what string, yes bool) error {
	if yes {
		return nil
	}
	in, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return advice.Usage.Errorf("--dry-run only shows what would happen", "%s; say --yes, because there is no terminal to ask on", what)
	}
	fmt.Fprintf(a.err, "%s. Go on? [y/N] ", what)
	answer := make(chan string, 1)
	go func() { // an interrupt leaves it blocked, and then the process ends
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if l := strings.ToLower(strings.TrimSpace(line)); l == "y" || l == "yes" {
			return nil
		}
		return errors.New("nothing was changed")
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return ctx.Err()
	}
}

// completeDatasets asks the master for names, and gives up soon: a shell waits.
func (a *app) completeDatasets(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || a.load(cmd, nil) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	reply, err := c.List(ctx, &headracev1.ListRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, d := range reply.Datasets {
		names = append(names, d.Name+"\t"+d.State)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
