package master

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/shardsvc/serve"
)

// web is the HTTP side of a master.
type web struct {
	server *http.Server
	tls    *tls.Config
}

func (m *Master) httpServer(srv *serve.Server, pushed *landing.Service, l net.Listener) (*web, error) {
	w := &web{}
	if l == nil {
		return w, nil
	}
	if m.cfg.TLS.Enabled() {
		cfg, err := m.cfg.TLS.ServerConfig(tls.VerifyClientCertIfGiven) // /healthz is open; see access.Pages
		if err != nil {
			return nil, err
		}
		w.tls = cfg
	}
	w.server = &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(m.cfg.Logger.Handler(), slog.LevelDebug),
	}
	m.cfg.Access.Guard(w.server, mux(m.routes(srv, link.Loopback(l.Addr().String())), pushed.Pages()))
	return w, nil
}

// doorServer is HTTP/1.1 on the master's own port, for callers that have proven their token
// and have no gRPC. It serves nothing but the pages of producers.
func (m *Master) doorServer(pushed *landing.Service) *web {
	return &web{server: &http.Server{
		Handler:           m.cfg.Access.Pages(mux(nil, pushed.Pages())),
		ConnContext:       link.WithCaller,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(m.cfg.Logger.Handler(), slog.LevelDebug),
	}}
}

// mux serves routes for reading, and posts, whose patterns have their method.
func mux(routes, posts map[string]http.Handler) http.Handler {
	m := http.NewServeMux()
	for pattern, h := range routes {
		m.Handle("GET "+pattern, h)
	}
	for pattern, h := range posts {
		m.Handle(pattern, h)
	}
	return m
}

// routes is every page by its pattern. access says which role each needs.
func (m *Master) routes(srv *serve.Server, loopback bool) map[string]http.Handler {
	// Healthy means that the shard service's loop answers. Ready means that it also grants:
	// a new term has waited for the agents that it knows.
	health := func(asked bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
			defer cancel()
			ready, err := srv.Ready(ctx)
			switch {
			case err != nil:
				http.Error(w, "the shard service does not answer: "+err.Error(), http.StatusServiceUnavailable)
			case asked && !ready:
				http.Error(w, "recovering: waiting for the agents of the last term", http.StatusServiceUnavailable)
			default:
				fmt.Fprintln(w, "ok")
			}
		}
	}
	index := "headrace master of job " + m.cfg.Job + "\n\n/metrics  /healthz  /readyz\n"
	routes := map[string]http.Handler{
		"/metrics": promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}),
		"/healthz": health(false),
		"/readyz":  health(true),
	}
	if loopback { // profiles show memory: for this machine only
		routes["/debug/pprof/"] = http.HandlerFunc(pprof.Index)
		routes["/debug/pprof/cmdline"] = http.HandlerFunc(pprof.Cmdline)
		routes["/debug/pprof/profile"] = http.HandlerFunc(pprof.Profile)
		routes["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
		routes["/debug/pprof/trace"] = http.HandlerFunc(pprof.Trace)
		index += "/debug/pprof/\n"
	}
	routes["/{$}"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, index) })
	return routes
}

func (w *web) serve(l net.Listener) error {
	if w.tls != nil {
		l = tls.NewListener(l, w.tls)
	}
	return served("HTTP", w.server.Serve(l), http.ErrServerClosed)
}

// stop ends the server at once. A scrape or a profile that is cut off does no harm.
func (w *web) stop() {
	if w.server != nil {
		_ = w.server.Close()
	}
}
