package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headrace/headrace/internal/link"
)

// serveMetrics shows an agent's own numbers (buffers, decode errors by field) at
// --metrics until stop is called. Without --metrics it registers and serves
// nothing.
func (a *app) serveMetrics(ctx context.Context, log *slog.Logger) (reg prometheus.Registerer, stop func(), err error) {
	if a.cfg.Metrics == "" {
		return nil, func() {}, nil
	}
	l, err := link.Listen(ctx, "HTTP", "--metrics", a.cfg.Metrics, a.cfg.TLS)
	if err != nil {
		return nil, nil, err
	}
	log.Info("metrics", "address", l.Addr().String())
	if a.cfg.TLS.Enabled() {
		cfg, err := a.cfg.TLS.ServerConfig()
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		l = tls.NewListener(l, cfg)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() { // ends when stop closes the server
		defer close(done)
		_ = server.Serve(l)
	}()
	return registry, func() { _ = server.Close(); <-done }, nil
}

// besides registers an agent's metrics with those of the master in the same
// process, which shows the trainers' times itself, by rank.
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
