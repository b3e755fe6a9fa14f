package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headrace/headrace/internal/link"
)

// ownMetrics is where an agent registers its own metrics (buffers, decode errors by
// field); nil without --metrics.
func (a *app) ownMetrics() *prometheus.Registry {
	if a.cfg.Metrics == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// serveMetrics serves the registry, and whether the agent is ready, at --metrics until
// stop is called. Without a registry it serves nothing.
func (a *app) serveMetrics(ctx context.Context, log *slog.Logger, registry *prometheus.Registry, ready <-chan struct{}) (stop func(), err error) {
	if registry == nil {
		return func() {}, nil
	}
	l, err := link.Listen(ctx, "HTTP", "--metrics", a.cfg.Metrics, a.cfg.TLS)
	if err != nil {
		return nil, err
	}
	loopback := link.Loopback(l.Addr().String())
	log.Info("metrics", "address", l.Addr().String())
	if a.cfg.TLS.Enabled() {
		cfg, err := a.cfg.TLS.ServerConfig(tls.VerifyClientCertIfGiven) // /healthz is open; see access.Pages
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, cfg)
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	a.cfg.Book().Guard(server, agentRoutes(registry, ready, loopback))
	done := make(chan struct{})
	go func() { // ends when stop closes the server
		defer close(done)
		_ = server.Serve(l)
	}()
	return func() { _ = server.Close(); <-done }, nil
}

func agentRoutes(registry *prometheus.Registry, ready <-chan struct{}, loopback bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ready:
			fmt.Fprintln(w, "ok")
		default:
			http.Error(w, "no master has answered yet", http.StatusServiceUnavailable)
		}
	})
	if loopback { // profiles show memory: for this machine only
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// besides registers an agent's metrics with those of the master in the same process. It
// leaves out the trainers' times, because the master shows them itself, by rank.
type besides struct{ prometheus.Registerer }

func (b besides) Register(c prometheus.Collector) error {
	if told(c) {
		return nil
	}
	return b.Registerer.Register(c)
}

func (b besides) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := b.Register(c); err != nil {
			panic(err)
		}
	}
}

func told(c prometheus.Collector) bool {
	descs := make(chan *prometheus.Desc, 16)
	go func() { // ends with Describe
		defer close(descs)
		c.Describe(descs)
	}()
	found := false
	for d := range descs {
		found = found || strings.Contains(d.String(), `"headrace_trainer_`)
	}
	return found
}
