package testbroker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/headrace/headrace/internal/remoting"
)

// RocketMQVersion is the version in rocketmq-pom.xml. Of 5.3.4 not all jars are published.
const RocketMQVersion = "5.3.3"

//go:embed rocketmq-pom.xml
var rocketmqPOM []byte

var rocketmq = software{name: "RocketMQ", version: RocketMQVersion, size: "86 MB", pom: rocketmqPOM}

// RocketMQOptions are the options of a name server and its brokers.
type RocketMQOptions struct {
	Brokers int  // how many masters; 0: one
	Slave   bool // the first broker has a slave
	// ACL: every request must be signed by User with Password.
	ACL bool
	// TLS: clients may also use TLS. The certificate is signed by CA.
	TLS bool

	HeapMiB int // heap of each broker's JVM, 0: 256
	// Set adds settings to the brokers' configuration.
	Set map[string]string

	Log io.Writer // gets the output of the processes; nil: a file in each folder
}

// RocketMQ is a name server and its brokers. Its methods are called by one goroutine. Kill and Stop end the
// first broker; the name server, Names, has its own methods.
type RocketMQ struct {
	*RocketBroker // the first
	Names         *RocketNames
	brokers       []*RocketBroker // the slave, if there is one, is the last
	client        *remoting.Client
}

// RocketNames is a name server.
type RocketNames struct {
	process
	lib     string
	classes classes
	opts    *RocketMQOptions
	port    int
}

// RocketBroker is one broker.
type RocketBroker struct {
	process
	lib      string
	classes  classes
	opts     *RocketMQOptions
	names    *RocketNames
	name     string
	id       int // 0: it is a master
	port, ha int
	client   *remoting.Client
}

// StartRocketMQ starts RocketMQ and returns when every broker can be read and written.
func StartRocketMQ(ctx context.Context, opts RocketMQOptions) (*RocketMQ, error) {
	lib, err := rocketmq.jars(ctx)
	if err != nil {
		return nil, err
	}
	c := classesFor(ctx, lib, func(ctx context.Context, write classes) error {
		m, err := startRocketMQ(ctx, RocketMQOptions{}, lib, write)
		if err != nil {
			return err
		}
		a := m.NewAppender("t")
		defer a.Close()
		if err = m.CreateTopic(ctx, "t", 1); err == nil {
			err = a.Append(ctx, 0, 0, [][]byte{[]byte("v")}, func() {})
		}
		if err == nil {
			err = m.end(syscall.SIGTERM, startWithin)
		}
		return errors.Join(err, m.Close())
	})
	return startRocketMQ(ctx, opts, lib, c)
}

func startRocketMQ(ctx context.Context, opts RocketMQOptions, lib string, c classes) (*RocketMQ, error) {
	m := &RocketMQ{}
	if err := m.create(ctx, lib, &opts, c); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *RocketMQ) create(ctx context.Context, lib string, opts *RocketMQOptions, c classes) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	m.Names = &RocketNames{lib: lib, classes: c.read(), opts: opts, port: ports[0]}
	if m.Names.process, err = newProcess("RocketMQ"); err != nil {
		return err
	}
	if opts.TLS {
		if err := m.Names.writeTLS(); err != nil {
			return err
		}
	}
	o := remoting.Options{NameServers: []string{m.Names.Addr()}}
	if opts.ACL {
		o.Credentials = remoting.Credentials{AccessKey: User, SecretKey: Password}
	}
	m.client = remoting.NewClient(o)
	for i := range max(1, opts.Brokers) {
		m.brokers = append(m.brokers, &RocketBroker{lib: lib, classes: c, opts: opts, names: m.Names, name: fmt.Sprintf("b%d", i), client: m.client})
	}
	if opts.Slave {
		m.brokers = append(m.brokers, &RocketBroker{lib: lib, classes: c, opts: opts, names: m.Names, name: "b0", id: 1, client: m.client})
	}
	m.RocketBroker = m.brokers[0]
	if err := m.Names.Start(ctx); err != nil {
		return err
	}
	errs := make([]error, len(m.brokers))
	var wg sync.WaitGroup
	for i, b := range m.brokers {
		wg.Go(func() { errs[i] = b.create(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Broker is master number i, from 0.
func (m *RocketMQ) Broker(i int) *RocketBroker { return m.brokers[i] }

// Slave is the first broker's slave.
func (m *RocketMQ) Slave() *RocketBroker { return m.brokers[len(m.brokers)-1] }

// NameServer is the name server's address.
func (m *RocketMQ) NameServer() string { return m.Names.Addr() }

// Client is a client with all rights.
func (m *RocketMQ) Client() *remoting.Client { return m.client }

// Close ends all processes and removes their folders.
func (m *RocketMQ) Close() error {
	var errs []error
	if m.client != nil {
		m.client.Close()
	}
	for _, b := range m.brokers {
		errs = append(errs, b.Close())
	}
	if m.Names != nil {
		errs = append(errs, m.Names.Close())
	}
	return errors.Join(errs...)
}

// Addr is the name server's address.
func (n *RocketNames) Addr() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

// Start starts a name server that was stopped or killed.
func (n *RocketNames) Start(ctx context.Context) error {
	conf := filepath.Join(n.dir, "names.conf")
	if err := writeConf(conf, map[string]string{"bindAddress": "127.0.0.1", "listenPort": fmt.Sprint(n.port),
		"kvConfigPath": filepath.Join(n.dir, "kvConfig.json"), "configStorePath": filepath.Join(n.dir, "namesrv.properties")}); err != nil {
		return err
	}
	cmd, err := rocketJava(n.dir, n.lib, n.classes, n.dir, n.opts, 128, 64, "org.apache.rocketmq.namesrv.NamesrvStartup", conf)
	if err != nil {
		return err
	}
	return n.start(ctx, cmd, n.opts.Log, func(ctx context.Context) error {
		c := remoting.NewClient(remoting.Options{NameServers: []string{n.Addr()}, Answer: answersWithin})
		defer c.Close()
		_, err := c.Brokers(ctx)
		return err
	})
}

func (b *RocketBroker) create(ctx context.Context) error {
	var err error
	if b.process, err = newProcess("RocketMQ"); err != nil {
		return err
	}
	if b.port, b.ha, err = brokerPorts(); err != nil {
		return err
	}
	if err := writeConf(b.conf(), b.properties()); err != nil {
		return err
	}
	return b.Start(ctx)
}

// Addr is the broker's address.
func (b *RocketBroker) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

// Name is the broker's name.
func (b *RocketBroker) Name() string { return b.name }

func (b *RocketBroker) conf() string { return filepath.Join(b.dir, "broker.conf") }

// Start starts a broker that was stopped or killed, on the same folder and ports.
func (b *RocketBroker) Start(ctx context.Context) error {
	heap := b.opts.HeapMiB
	if heap == 0 {
		heap = 256
	}
	cmd, err := rocketJava(b.dir, b.lib, b.classes, b.names.dir, b.opts, heap, 128, "org.apache.rocketmq.broker.BrokerStartup", b.conf())
	if err != nil {
		return err
	}
	return b.start(ctx, cmd, b.opts.Log, b.answers)
}

// answers: a broker that has just started is often not registered for ten seconds. A change of its
// configuration makes it register at once.
func (b *RocketBroker) answers(ctx context.Context) error {
	if err := b.client.SetConfig(ctx, b.Addr(), map[string]string{"brokerPermission": fmt.Sprint(remoting.ReadWrite)}); err != nil {
		return err
	}
	all, err := b.client.Brokers(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.Name == b.name && slices.ContainsFunc(one.Replicas, func(r remoting.Replica) bool { return r.Addr == b.Addr() }) {
			return nil
		}
	}
	return fmt.Errorf("broker %s is not registered yet", b.name)
}

// rocketJava makes the command of a name server or a broker.
func rocketJava(dir, lib string, c classes, certs string, opts *RocketMQOptions, heap, direct int, class, conf string) (*exec.Cmd, error) {
	logback := filepath.Join(dir, "logback.xml")
	if err := os.WriteFile(logback, []byte(rocketLogback), 0o600); err != nil {
		return nil, err
	}
	args := []string{fmt.Sprintf("-Xmx%dm", heap), fmt.Sprintf("-XX:MaxDirectMemorySize=%dm", direct),
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-Duser.home=" + dir, "-Drmq.logback.configurationFile=" + logback}
	args = append(args, c.options()...)
	if opts.TLS {
		args = append(args, "-Dtls.config.file="+filepath.Join(certs, "tls.properties"))
	} else { // without TLS each process would make an RSA key, which takes seconds
		args = append(args, "-Dtls.server.mode=disabled")
	}
	cmd := exec.Command("java", append(args, "-cp", filepath.Join(lib, "*"), class, "-c", conf)...)
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+dir)
	return cmd, nil
}

// brokerPorts finds two ports, for clients and for slaves. A broker also listens on its port for clients
// minus 2.
func brokerPorts() (port, ha int, err error) {
	dir, err := locks()
	if err != nil {
		return 0, 0, err
	}
	for range 200 {
		ports, err := freePorts(2)
		if err != nil {
			return 0, 0, err
		}
		if ok, err := takePort(dir, ports[0]-2); err != nil {
			return 0, 0, err
		} else if ok {
			return ports[0], ports[1], nil
		}
	}
	return 0, 0, errors.New("no free ports for a RocketMQ broker")
}
