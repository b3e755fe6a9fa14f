package agent

import (
	"context"
)

// Agent is one node's agent. Make it with New, start it with Run.
type Agent struct {
	cfg   Config
	ready chan struct{}
}

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, ready: make(chan struct{})}, nil
}

// Run serves trainers until ctx ends: it listens on the socket (a living agent
// there is an error), keeps a session with the master, and returns nil after a
// graceful stop, in which trainers are told to end. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Ready is closed when the socket listens and the master has answered the first
// Hello.
func (a *Agent) Ready() <-chan struct{} { return a.ready }
