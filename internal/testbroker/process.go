package testbroker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	startWithin = 120 * time.Second // on a busy machine
	stopWithin  = 20 * time.Second  // from SIGTERM to SIGKILL
	pollEvery   = 50 * time.Millisecond
)

// Options of a broker.
type Options struct {
	Secure bool      // also SASL (PLAIN, SCRAM), TLS, and both together
	Log    io.Writer // what the broker says; nil: a file in its folder
}

// Broker is one Kafka process and its folder. Its methods are for one goroutine.
type Broker struct {
	opts      Options
	dir       string
	lib       string
	clusterID string
	ports     []int // controller, PLAINTEXT, SASL, SSL, SASL over SSL

	pid    int
	exited chan struct{}
}

// StartKafka returns when every partition can be read and written.
func StartKafka(ctx context.Context, opts Options) (*Broker, error) {
	lib, err := jars(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headrace-kafka-")
	if err != nil {
		return nil, err
	}
	b := &Broker{opts: opts, dir: dir, lib: lib}
	if err := b.create(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Broker) create(ctx context.Context) error {
	var err error
	if b.ports, err = freePorts(5); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x3f // an id that begins with a dash would be taken for an option
	b.clusterID = base64.RawURLEncoding.EncodeToString(id[:])
	if b.opts.Secure {
		if err := b.writeCerts(); err != nil {
			return err
		}
	}
	file := b.propertiesFile()
	if err := os.WriteFile(file, []byte(b.properties()), 0o600); err != nil {
		return err
	}
	format := exec.CommandContext(ctx, "java", append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", b.classpath(), "kafka.tools.StorageTool"}, b.formatArgs(file)...)...)
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting Kafka's folder: %w\n%s", err, out)
	}
	return b.Start(ctx)
}

func (b *Broker) classpath() string      { return filepath.Join(b.lib, "*") }
func (b *Broker) propertiesFile() string { return filepath.Join(b.dir, "server.properties") }
func (b *Broker) logFile() string        { return filepath.Join(b.dir, "broker.log") }

// Start starts a broker that was stopped or killed, on the same folder and ports.
func (b *Broker) Start(ctx context.Context) error {
	if b.exited != nil {
		return errors.New("the broker runs already")
	}
	log := b.opts.Log
	if log == nil {
		f, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		log = f
	}
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", b.classpath(), "kafka.Kafka", b.propertiesFile())
	cmd.Stdout, cmd.Stderr = log, log
	endsWithUs(cmd)
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// A process that is to end with us ends with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	b.pid, b.exited = cmd.Process.Pid, exited
	if err := b.ready(ctx); err != nil {
		said, _ := os.ReadFile(b.logFile())
		return fmt.Errorf("%w\nthe broker says:\n%s", errors.Join(err, b.Kill()), said[max(0, len(said)-4000):])
	}
	return nil
}

// ready waits until each partition's leader answers for it: some tenths of a
// second after the broker says that it is started.
func (b *Broker) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var last error
	for {
		if last = b.answers(ctx); last == nil {
			return nil
		}
		select {
		case <-b.exited:
			return errors.New("the Kafka broker ended while it was starting")
		case <-ctx.Done():
			return fmt.Errorf("the Kafka broker is not ready: %w (%w)", last, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

func (b *Broker) answers(ctx context.Context) error {
	// A transport that met a broker that is not there remembers it for a while.
	client, closeClient := b.Client()
	defer closeClient()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	meta, err := client.Metadata(ctx, &kafkago.MetadataRequest{})
	if err != nil {
		return err
	}
	if len(meta.Brokers) == 0 {
		return errors.New("no broker is registered yet")
	}
	ask := map[string][]kafkago.OffsetRequest{}
	for _, t := range meta.Topics {
		for _, p := range t.Partitions {
			if !t.Internal {
				ask[t.Name] = append(ask[t.Name], kafkago.LastOffsetOf(p.ID))
			}
		}
	}
	return b.leads(ctx, client, ask)
}

func (b *Broker) leads(ctx context.Context, client *kafkago.Client, ask map[string][]kafkago.OffsetRequest) error {
	if len(ask) == 0 {
		return nil
	}
	res, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: ask})
	if err != nil {
		return err
	}
	for topic, parts := range res.Topics {
		for _, p := range parts {
			if p.Error != nil {
				return fmt.Errorf("%s/%d: %w", topic, p.Partition, p.Error)
			}
		}
	}
	return nil
}

// Client is a client of the plain listener.
func (b *Broker) Client() (client *kafkago.Client, closeIdle func()) {
	tr := &kafkago.Transport{MetadataTTL: time.Second, IdleTimeout: 5 * time.Second}
	return &kafkago.Client{Addr: kafkago.TCP(b.Addr()), Transport: tr, Timeout: 10 * time.Second}, tr.CloseIdleConnections
}

// Stop ends the broker as an operator would; Start may follow.
func (b *Broker) Stop() error { return b.end(syscall.SIGTERM, stopWithin) }

// Kill is kill -9; Start may follow.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL, stopWithin) }

func (b *Broker) end(sig syscall.Signal, within time.Duration) error {
	if b.exited == nil {
		return nil
	}
	if err := syscall.Kill(b.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	wait := time.NewTimer(within)
	defer wait.Stop()
	select {
	case <-b.exited:
	case <-wait.C:
		_ = syscall.Kill(b.pid, syscall.SIGKILL)
		<-b.exited
	}
	b.exited, b.pid = nil, 0
	return nil
}

// Exited is closed when the running broker has ended.
func (b *Broker) Exited() <-chan struct{} { return b.exited }

// Close ends the broker and removes its folder.
func (b *Broker) Close() error { return errors.Join(b.Kill(), os.RemoveAll(b.dir)) }

// Addr is the plain listener, without TLS and SASL.
func (b *Broker) Addr() string { return b.addr(1) }

// SASLAddr, TLSAddr and SASLTLSAddr are the listeners of a secure broker.
func (b *Broker) SASLAddr() string    { return b.addr(2) }
func (b *Broker) TLSAddr() string     { return b.addr(3) }
func (b *Broker) SASLTLSAddr() string { return b.addr(4) }

func (b *Broker) addr(i int) string { return fmt.Sprintf("127.0.0.1:%d", b.ports[i]) }

// Dir is the broker's folder.
func (b *Broker) Dir() string { return b.dir }
