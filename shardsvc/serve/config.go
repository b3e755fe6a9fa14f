package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/store"
	"github.com/headrace/headrace/shardsvc"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults.
const (
	defaultTTL         = 5 * time.Second
	defaultMaxPending  = 64 << 10 // changes that wait for their commit
	defaultOutboxBytes = 16 << 20 // replies that wait for one agent
	// Long enough that an election of a leader, or one slow answer, does not count as silence.
	defaultSilentAfter = 3 * time.Second
	maxMessageBytes    = 1 << 20 // one MasterMessage is cut here
)

var (
	// ErrStopped means that Run has ended or is ending.
	ErrStopped = errors.New("the master is stopping")
	// ErrUnknown means that there is no such dataset or partition.
	ErrUnknown = errors.New("not known here")
)

// Config of a Server. Store is required; the rest has defaults.
type Config struct {
	Store   store.Store // Run does not close it
	Job     string      // default "default"
	Model   string      // shared (default) | replicated | private
	Version string      // of this binary
	TTL     time.Duration
	// LostAfter is how long an agent of a shared model may be silent before the rows of its
	// trainers go to others. An agent that is started again within that time reports what
	// they had stepped. TTL or more; default: TTL.
	LostAfter time.Duration

	// Check, if set, looks at a spec and its source before the spec is applied. For files:
	// is the root allowed, are the files there, are the fields in their first line? Its
	// error refuses the spec; a *dataset.SpecError names the field.
	Check func(context.Context, *dataset.Spec) error

	// Look, if set, looks for the manifests of cuts whose process is gone. Without it nobody
	// sees these manifests, and the cuts are voided.
	Look Look
	// Release, if set, removes what a deleted dataset has at its source, such as a subscription.
	Release func(context.Context, *dataset.Spec) error
	// Moved, if set, commits the marks after a rewind to brokers, before the rewind is answered.
	Moved func(context.Context) error

	// Away, if set, is told that an agent could not reach the source of a dataset. It returns
	// at once.
	Away func(dataset uint32)

	// ReadLetters, if set, reads dead letters that are files: at most `most` of them, from
	// byte `from` on. next is the byte where the next ones begin; 0: there are none now.
	ReadLetters func(spec *dataset.Spec, from int64, most int) (lines [][]byte, next int64, err error)

	// SilentAfter is how long a source may leave a question unanswered before that is shown.
	SilentAfter time.Duration // default 3 s

	Logger     *slog.Logger          // default: none
	Registerer prometheus.Registerer // default: none

	// MaxPending is how many changes may wait for the commit before the loop stops reading.
	// OutboxBytes is how many bytes of replies one agent may leave unread.
	MaxPending  int
	OutboxBytes int
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("serve: Config.Store is missing")
	}
	if c.Job == "" {
		c.Job = "default"
	}
	if c.Model == "" {
		c.Model = "shared"
	}
	if models := []string{"shared", "replicated", "private"}; !slices.Contains(models, c.Model) {
		return c, fmt.Errorf("model %q: must be one of %v", c.Model, models)
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.TTL < 50*time.Millisecond {
		return c, fmt.Errorf("session TTL %v: must be at least 50ms", c.TTL)
	}
	if c.SilentAfter <= 0 {
		c.SilentAfter = defaultSilentAfter
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxPending <= 0 {
		c.MaxPending = defaultMaxPending
	}
	if c.OutboxBytes <= 0 {
		c.OutboxBytes = defaultOutboxBytes
	}
	return c, nil
}

func (c Config) core() shardsvc.Config {
	return shardsvc.Config{Job: c.Job, Model: c.Model, SessionTTL: shardsvc.Time(c.TTL), LostAfter: shardsvc.Time(c.LostAfter)}
}
