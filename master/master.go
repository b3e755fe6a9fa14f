package master

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/store"
	"github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/shardsvc/serve"
)

// Master owns one job. Make it with New, start it with Run.
type Master struct {
	cfg      Config
	registry *prometheus.Registry
	ready    chan struct{}
	addr     string // set before ready is closed
	http     string
}

// New checks the configuration. It opens nothing.
func New(cfg Config) (*Master, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Master{cfg: cfg, registry: prometheus.NewRegistry(), ready: make(chan struct{})}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// Ready is closed when the master answers on Addr.
func (m *Master) Ready() <-chan struct{} { return m.ready }

// Addr is where gRPC listens, and HTTP where metrics are; after Ready.
func (m *Master) Addr() string { return m.addr }

// HTTP is the address of /metrics, "" without one; after Ready.
func (m *Master) HTTP() string { return m.http }

// Registry is what /metrics shows; an agent in the same process adds its own.
func (m *Master) Registry() prometheus.Registerer { return m.registry }

// Run serves until ctx ends, and then returns nil. It returns the first failure: another
// master has the state folder, a newer version wrote it, a port is in use, the store
// cannot write any more. When Run returns, nothing is left running, listening or locked.
// Call it once.
func (m *Master) Run(ctx context.Context) (err error) {
	st, err := m.openStore()
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := st.Close(); err == nil { // after a failure Close would only repeat it
			err = closeErr
		}
	}()

	home, err := m.folders()
	if err != nil {
		return err
	}
	if m.cfg.Access.State != "" { // before anybody can call
		if err := access.Keep(m.cfg.Access.State); err != nil {
			return err
		}
	}
	if err := m.cfg.Access.Check(); err != nil {
		return err
	}
	grpcListener, err := link.Listen(ctx, "gRPC", "--listen", m.cfg.Listen, m.cfg.TLS)
	if err != nil {
		return err
	}
	defer func() { _ = grpcListener.Close() }()
	var httpListener net.Listener
	if m.cfg.HTTP != "" {
		if httpListener, err = link.Listen(ctx, "HTTP", "--http", m.cfg.HTTP, m.cfg.TLS); err != nil {
			return err
		}
		defer func() { _ = httpListener.Close() }()
		m.http = reachable(httpListener.Addr())
	}
	m.addr = reachable(grpcListener.Addr())

	bad := &letters{open: m.cfg.OpenSource, state: m.cfg.State, roots: m.cfg.AllowRoots, log: m.cfg.Logger}
	brokers := &commits{open: m.cfg.OpenSource, log: m.cfg.Logger, every: commitEvery, said: map[said]told{}}
	away := &probes{open: m.cfg.OpenSource, log: m.cfg.Logger, told: make(chan uint32, 16)}
	srv, err := serve.New(serve.Config{
		Store: st, Job: m.cfg.Job, Model: m.cfg.Model, Version: m.cfg.Version, TTL: m.cfg.SessionTTL, LostAfter: m.cfg.LostAfter,
		Check: m.cfg.Check, Logger: m.cfg.Logger, Registerer: m.registry, Look: m.look, Moved: brokers.round, Release: brokers.release, SilentAfter: m.cfg.SilentAfter,
		ReadLetters: bad.read, Away: away.note,
	})
	if err != nil {
		return fmt.Errorf("state folder %s: %w", m.cfg.State, err)
	}
	brokers.srv, bad.srv, away.srv = srv, srv, srv
	srv.SetHTTP(m.http)
	chunks, err := m.openLanding(ctx)
	if err != nil {
		return err
	}
	if c, ok := chunks.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	pushed := landing.New(srv, chunks, m.cfg.Logger)
	return m.serve(ctx, srv, brokers, bad, away, home, pushed, grpcListener, httpListener)
}

func (m *Master) openLanding(ctx context.Context) (storage.Store, error) {
	if m.cfg.OpenLanding != nil {
		return m.cfg.OpenLanding(ctx)
	}
	return storage.OpenFolder(landing.Folder(m.cfg.State))
}

// serve starts every goroutine of the process and stops them in order: first
// discovery and HTTP, then the shard service, which ends the agents' streams,
// then gRPC.
func (m *Master) serve(ctx context.Context, srv *serve.Server, brokers *commits, bad *letters, away *probes, home folders, pushed *landing.Service, grpcListener, httpListener net.Listener) error {
	door, err := link.NewDoor(grpcListener, m.cfg.TLS, m.cfg.Access, m.cfg.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = door.Close() }()
	gs := grpcServer(srv, door)
	pb.RegisterPeersServer(gs, newPeers(m.cfg.Job, time.Now))
	pushed.Register(gs)
	hs, err := m.httpServer(srv, pushed, httpListener)
	if err != nil {
		return err
	}
	ds, pages := m.doorServer(pushed), door.Pages()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fail := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	coreCtx, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCore()

	var outer, core, wire sync.WaitGroup
	core.Go(func() {
		err := srv.Run(coreCtx)
		if err == nil && coreCtx.Err() == nil {
			err = errors.New("the shard service ended")
		}
		fail(err)
	})
	brokers.begin(ctx)
	outer.Go(func() { fail(newDiscovery(m.cfg, srv, &brokers.telling).run(ctx)) })
	outer.Go(func() { brokers.run(ctx) })
	outer.Go(func() { bad.run(ctx) })
	outer.Go(func() { away.run(ctx) })
	outer.Go(func() { pushed.Run(ctx) })
	outer.Go(func() { fail(home.watch(ctx)) })
	outer.Go(func() { srv.WatchImbalance(ctx) })
	outer.Go(func() {
		(&guard{open: m.cfg.OpenSource, srv: srv, log: m.cfg.Logger, live: map[uint32]*watch{}}).run(ctx)
	})
	wire.Go(func() { fail(served("gRPC", gs.Serve(door), grpc.ErrServerStopped)) })
	wire.Go(func() { fail(ds.serve(pages)) })
	if httpListener != nil {
		wire.Go(func() { fail(hs.serve(httpListener)) })
	}
	if err := link.WriteAddress(m.cfg.State, m.addr); err != nil {
		fail(fmt.Errorf("state folder %s: %w", m.cfg.State, err))
	}
	m.cfg.Logger.Info("master is up", "job", m.cfg.Job, "model", m.cfg.Model, "address", m.addr, "http", m.http, "state", m.cfg.State)
	close(m.ready)

	<-ctx.Done()
	m.cfg.Logger.Info("master stops", "job", m.cfg.Job)
	link.RemoveAddress(m.cfg.State, m.addr)
	hs.stop()
	ds.stop()
	outer.Wait()
	stopCore()
	core.Wait()
	stopGRPC(gs)
	wire.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

func served(what string, err, stopped error) error {
	if err == nil || errors.Is(err, stopped) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (m *Master) openStore() (*store.Pebble, error) {
	if err := os.MkdirAll(m.cfg.State, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w; choose another one with --state", err)
	}
	return store.Open(filepath.Join(m.cfg.State, storeFolder), store.Options{Logger: m.cfg.Logger})
}

// Lives reports whether the master of a state folder on this machine lives. It is for other
// processes than the master's own.
func Lives(state string) bool { return store.InUse(filepath.Join(state, storeFolder)) }

// reachable turns the wildcard address into one that can be dialed from here.
func reachable(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return a.String()
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: t.Port}).String()
}
