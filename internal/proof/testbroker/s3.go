package testbroker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// S3Version is the version of versitygw, the S3 server.
const S3Version = "1.8.0"

// S3 is a real S3 server over a temporary folder. Its methods are called by one goroutine.
type S3 struct {
	process
	program string
	port    int
	log     io.Writer
	// AccessKey and SecretKey have all rights. They are made for this server.
	AccessKey, SecretKey string
}

// StartS3 starts the server and returns when it answers. The first call on a machine builds the server from
// its Go module, which takes minutes.
func StartS3(ctx context.Context, log io.Writer) (*S3, error) {
	program, err := s3Program(ctx)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s := &S3{program: program, port: ports[0], log: log, AccessKey: "AK" + rand.Text()[:14], SecretKey: rand.Text()}
	if s.process, err = newProcess("S3"); err != nil {
		return nil, err
	}
	if err := os.Mkdir(s.folder(), 0o755); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *S3) folder() string { return filepath.Join(s.dir, "buckets") }

// Endpoint is the URL of the server.
func (s *S3) Endpoint() string { return "http://" + s.address() }

func (s *S3) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Environment has the variables that clients of the server need, under the names of the aws command.
func (s *S3) Environment() []string {
	return []string{"AWS_ENDPOINT_URL=" + s.Endpoint(), "AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey, "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true"}
}

// Bucket creates a bucket. The server keeps a bucket as a folder.
func (s *S3) Bucket(name string) error { return os.Mkdir(filepath.Join(s.folder(), name), 0o755) }

// Start starts a server that was stopped or killed, on the same folder and port.
func (s *S3) Start(ctx context.Context) error {
	cmd := exec.Command(s.program, "--quiet", "--port", s.address(), "--region", "us-east-1", "posix", s.folder())
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	return s.start(ctx, cmd, s.log, s.answers)
}

func (s *S3) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint(), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req) // it refuses the request without credentials, which is an answer
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// s3Program gives the path of the server's program, and builds it if it is not there. It is not in our
// modules, because it has many dependencies and only tests use it.
func s3Program(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "headrace", "versitygw-"+S3Version)
	program := filepath.Join(home, "versitygw")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("%w: go, which builds the S3 server versitygw", errMissing)
	}
	part := filepath.Join(home, "part")
	cmd := exec.CommandContext(ctx, "go", "install", "github.com/versity/versitygw/cmd/versitygw@v"+S3Version)
	cmd.Dir = home // a folder without a module
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOFLAGS=") && !strings.HasPrefix(v, "GOBIN=") && !strings.HasPrefix(v, "CGO_ENABLED=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GOBIN="+part, "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building versitygw v%s: %w\n%s", S3Version, err, out)
	}
	return program, os.Rename(filepath.Join(part, "versitygw"), program)
}
