package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/store"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// serverEnv is the variable with the state folder. If it is set, this program is the master.
const (
	serverEnv  = "HEADRACE_BENCH_LEASE_SERVER"
	profileEnv = "HEADRACE_BENCH_LEASE_PROFILE"
)

const spec = `
name: bench
files: {root: /data}
decode: {format: lines, columns: [{name: line, path: $value, dtype: bytes}]}
lease: {initial: 100, min: 100, max: 100}
`

// counted counts the commits that were synced.
type counted struct {
	store.Store
	n atomic.Int64
}

func (c *counted) Commit(puts []shardsvc.Put) error {
	c.n.Add(1)
	return c.Store.Commit(puts)
}

// serveIn is the master. It prints its address on the first line. When its input ends, it prints its number
// of commits, and ends.
func serveIn(dir string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if file := os.Getenv(profileEnv); file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
		defer func() { _ = f.Sync() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
	}
	pb, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	st := &counted{Store: pb}
	dataset.Register(files.Kind)
	srv, err := serve.New(serve.Config{Store: st, Job: "bench", Version: "bench"})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	gs := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	srv.Register(gs)
	go gs.Serve(lis)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	if err := fill(ctx, srv, lis.Addr().String()); err != nil {
		return err
	}
	before := st.n.Load()
	fmt.Println(lis.Addr())
	io.Copy(io.Discard, os.Stdin)
	fmt.Println(st.n.Load() - before)
	cancel()
	err = <-ended
	gs.Stop()
	return errors.Join(err, pb.Close())
}

// fill creates the dataset and its partitions. Each partition is a file of 10^12 units.
func fill(ctx context.Context, srv *serve.Server, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := headracev1.NewDatasetsClient(conn).Apply(ctx, &headracev1.ApplyRequest{Yaml: spec}); err != nil {
		return err
	}
	ids := make([]serve.NewPartition, partitions)
	for i := range ids {
		ids[i].ID = sources.PartitionID("files:bench/" + strconv.Itoa(i))
	}
	numbers, err := srv.AddPartitions(ctx, 1, ids, false)
	if err != nil {
		return err
	}
	for i, no := range numbers {
		seg := sources.Segment{ID: 0, End: 1e12, Sealed: true, Locator: make([]byte, 64), Name: fmt.Sprintf("day_%d.tsv", i)}
		if err := srv.AddSegments(ctx, no, -1, []sources.Segment{seg}, true); err != nil {
			return err
		}
	}
	return srv.PartitionsListed(ctx, 1)
}

// server is the master process as the client sees it.
type server struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	addr  string
	ended bool
	cpu   time.Duration // CPU time until its end, with start and setting up
}

func startServer(dir, profile string) (*server, error) {
	m := &server{cmd: exec.Command(os.Args[0])}
	m.cmd.Env = append(os.Environ(), serverEnv+"="+dir, profileEnv+"="+profile)
	m.cmd.Stderr = os.Stderr
	var err error
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.out = bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := m.out.ReadString('\n')
	if err != nil {
		m.stop()
		return nil, fmt.Errorf("the master did not start: %w", err)
	}
	m.addr = strings.TrimSpace(line)
	return m, nil
}

func (m *server) stop() {
	if !m.ended {
		m.ended = true
		m.in.Close()
		if err := m.cmd.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "master:", err)
		}
		m.cpu = m.cmd.ProcessState.UserTime() + m.cmd.ProcessState.SystemTime()
	}
}

// counts asks the master how much it settled, ends it, and reads its number of commits.
func (m *server) counts() (acked, commits int64, err error) {
	conn, err := grpc.NewClient(m.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	d, err := headracev1.NewDatasetsClient(conn).Describe(context.Background(), &headracev1.DescribeRequest{Name: "bench"})
	if err != nil {
		return 0, 0, err
	}
	m.in.Close()
	line, err := m.out.ReadString('\n')
	if err != nil {
		return 0, 0, err
	}
	commits, err = strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	m.stop()
	return d.Counts.Acked, commits, err
}
