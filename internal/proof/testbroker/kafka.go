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
	"slices"
	"sync"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const portsEach = 5

// Options are the options of a broker.
type Options struct {
	// DeletesEvery is how often Kafka looks for segments to delete. 0: every five minutes.
	DeletesEvery time.Duration

	Secure bool // listen also with SASL (PLAIN, SCRAM), with TLS, and with both
	// Brokers is how many brokers there are. 0 means 1. The first one is the only controller: without it
	// leaders do not move. It cannot be used with Secure.
	Brokers int

	// Steady is for a broker that is never killed: its controller waits 30 s for a heartbeat on a busy
	// machine, and not 2 s, before the broker's partitions have no leader.
	Steady bool

	// Fast is for measurements: the JVM also uses its slow compiler, whose code is faster. Tests are too
	// short for that to pay.
	Fast bool

	HeapMiB int // heap of the JVM, 0: 256; a record of 100 MB is in it several times

	Log io.Writer // gets the broker's output; nil: a file in its folder
}

// Broker is one Kafka process and its folder. Its methods are called by one goroutine.
type Broker struct {
	process
	opts      Options
	lib       string
	classes   classes
	clusterID string
	id        int       // 1 is also the controller
	others    []*Broker // of the first broker: those with the ids 2, 3 ...
	quorum    int       // the controller's port
	ports     []int     // controller, PLAINTEXT, SASL, SSL, SASL over SSL
}

// StartKafka starts Kafka and returns when every partition can be read and written.
func StartKafka(ctx context.Context, opts Options) (*Broker, error) {
	lib, err := kafka.jars(ctx)
	if err != nil {
		return nil, err
	}
	c := classesFor(ctx, lib, func(ctx context.Context, write classes) error {
		b, err := startKafka(ctx, Options{}, lib, write)
		if err != nil {
			return err
		}
		a := NewAppender(b.Addr(), "t")
		defer a.Close()
		if err = b.CreateTopic(ctx, "t", 1, nil); err == nil {
			err = a.Append(ctx, 0, 0, [][]byte{[]byte("v")}, 0, func() {})
		}
		if err == nil {
			err = b.end(syscall.SIGTERM, startWithin)
		}
		return errors.Join(err, b.Close())
	})
	return startKafka(ctx, opts, lib, c)
}

func startKafka(ctx context.Context, opts Options, lib string, c classes) (*Broker, error) {
	b := &Broker{opts: opts, lib: lib, classes: c, id: 1}
	if err := b.createAll(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// createAll starts all brokers at the same time: the others wait for the first.
func (b *Broker) createAll(ctx context.Context) error {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x3f // an id that begins with a dash would be read as an option
	b.clusterID = base64.RawURLEncoding.EncodeToString(id[:])
	all := []*Broker{b}
	for id := 2; id <= b.opts.Brokers; id++ {
		b.others = append(b.others, &Broker{opts: b.opts, lib: b.lib, classes: b.classes, id: id, clusterID: b.clusterID})
	}
	all = append(all, b.others...)
	ports, err := freePorts(portsEach * len(all)) // for all brokers in one call, so that no port is given twice
	if err != nil {
		return err
	}
	for i, o := range all {
		o.ports, o.quorum = ports[i*portsEach:(i+1)*portsEach], ports[0]
		if o.process, err = newProcess("Kafka"); err != nil {
			return err
		}
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		wg.Go(func() { errs[i] = o.create(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Node is the broker with this id. 1 is b itself.
func (b *Broker) Node(id int) *Broker {
	if id == b.id {
		return b
	}
	return b.others[id-2]
}

func (b *Broker) create(ctx context.Context) error {
	if b.opts.Secure {
		if err := b.writeCerts(); err != nil {
			return err
		}
	}
	file := b.propertiesFile()
	if err := os.WriteFile(file, []byte(b.properties()), 0o600); err != nil {
		return err
	}
	args := append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, b.classes.read().options()...)
	args = append(args, "-cp", b.classpath(), "kafka.tools.StorageTool")
	format := exec.CommandContext(ctx, "java", append(args, b.formatArgs(file)...)...)
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting Kafka's folder: %w\n%s", err, out)
	}
	return b.Start(ctx)
}

func (b *Broker) classpath() string      { return filepath.Join(b.lib, "*") }
func (b *Broker) propertiesFile() string { return filepath.Join(b.dir, "server.properties") }

// Start starts a broker that was stopped or killed, on the same folder and ports.
func (b *Broker) Start(ctx context.Context) error {
	heap := b.opts.HeapMiB
	if heap == 0 {
		heap = 256
	}
	args := []string{fmt.Sprintf("-Xmx%dm", heap), "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}
	if !b.opts.Fast {
		args = append(args, "-XX:TieredStopAtLevel=1")
	}
	args = append(args, b.classes.options()...)
	cmd := exec.Command("java", append(args, "-cp", b.classpath(), "kafka.Kafka", b.propertiesFile())...)
	// The broker is ready when the leader of each partition answers: some tenths of a second after it
	// says that it is started.
	return b.start(ctx, cmd, b.opts.Log, b.answers)
}

func (b *Broker) answers(ctx context.Context) error {
	// Each try needs a new transport: it remembers for a while that a broker could not be reached.
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
	if b.opts.Brokers > 1 { // the leaders may be other brokers, which may be down
		if !slices.ContainsFunc(meta.Brokers, func(o kafkago.Broker) bool { return o.ID == b.id }) {
			return fmt.Errorf("broker %d is not registered yet", b.id)
		}
		return nil
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
	return &kafkago.Client{Addr: kafkago.TCP(b.Addr()), Transport: tr, Timeout: time.Minute}, tr.CloseIdleConnections
}

// Close ends the broker and removes its folder. With the first broker it closes all.
func (b *Broker) Close() error {
	var errs []error
	for _, o := range b.others {
		errs = append(errs, o.Close())
	}
	errs = append(errs, b.process.Close())
	return errors.Join(errs...)
}

// Addr is the address of the listener without TLS and SASL.
func (b *Broker) Addr() string { return b.addr(1) }

// SASLAddr, TLSAddr and SASLTLSAddr are the listeners of a secure broker.
func (b *Broker) SASLAddr() string    { return b.addr(2) }
func (b *Broker) TLSAddr() string     { return b.addr(3) }
func (b *Broker) SASLTLSAddr() string { return b.addr(4) }

func (b *Broker) addr(i int) string { return fmt.Sprintf("127.0.0.1:%d", b.ports[i]) }
