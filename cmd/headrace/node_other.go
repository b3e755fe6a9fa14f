//go:build !linux

package main

import (
	"log/slog"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/link"
)

// newAgent: an agent shares memory with its trainers, and knows their end, by means that only
// Linux has. Masters and tools run here.
func (a *app) newAgent(grpc.ClientConnInterface, link.Target, *slog.Logger, prometheus.Registerer) (node, error) {
	return nil, advice.Failed.Errorf("run agents and trainers in a container or a virtual machine with Linux; masters and tools run here",
		"agents and trainers do not run on %s yet", runtime.GOOS)
}

// tellEnded: without agents here, nobody has to know.
func (a *app) tellEnded(int, bool) {}
