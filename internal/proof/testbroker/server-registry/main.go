// Command server-registry runs a real schema registry in the foreground. It prints the
// registry's address and the id of its process.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "server-registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r, err := testbroker.StartRegistry(ctx, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Println(r.URL(), r.PID())
	fmt.Fprintf(os.Stderr, "Apicurio Registry %s; Ctrl-C ends it and forgets its schemas\n", testbroker.RegistryVersion)
	select {
	case <-ctx.Done():
		return r.Stop()
	case <-r.Exited():
		return fmt.Errorf("the registry ended by itself")
	}
}
