package testbroker

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// PulsarVersion is the version in pulsar-pom.xml.
const PulsarVersion = "4.0.7"

var (
	//go:embed pulsar-pom.xml
	pulsarPOM []byte
	//go:embed pulsar-settings.xml
	pulsarSettings []byte
	//go:embed pulsar-log4j2.xml
	pulsarLog []byte

	pulsarJars = software{name: "Pulsar", version: PulsarVersion, size: "235 MB", pom: pulsarPOM, settings: pulsarSettings}
)

// PulsarOptions are the options of a broker.
type PulsarOptions struct {
	// EntriesPerLedger is how many entries a ledger has before the broker begins another; 0: 1000.
	EntriesPerLedger int
	// Secure: TLS only, for the protocol and the admin API. Clients must log in with Token or with a
	// client's certificate.
	Secure bool
	// Config adds settings to standalone.conf, or replaces them.
	Config map[string]string
	Log    io.Writer // gets the broker's output; nil: a file in its folder
}

// Pulsar is one standalone Pulsar: broker, bookie and metadata in one process. The methods that start and
// end it are called by one goroutine.
type Pulsar struct {
	process
	opts    PulsarOptions
	lib     string
	classes classes
	ports   []int // of the protocol, of the admin API and of the bookie
	token   string
	created []string // topics, in the admin API's words
}

// StartPulsar starts Pulsar and returns when topics can be created, written and read.
func StartPulsar(ctx context.Context, opts PulsarOptions) (*Pulsar, error) {
	lib, err := pulsarJars.jars(ctx)
	if err != nil {
		return nil, err
	}
	c := classesFor(ctx, lib, func(ctx context.Context, write classes) error {
		b, err := startPulsar(ctx, PulsarOptions{}, lib, write)
		if err != nil {
			return err
		}
		if err = b.CreateTopic(ctx, "t", 1); err == nil {
			err = b.appendOne(ctx, "t")
		}
		if err == nil {
			err = b.end(syscall.SIGTERM, startWithin)
		}
		return errors.Join(err, b.Close())
	})
	return startPulsar(ctx, opts, lib, c)
}

func startPulsar(ctx context.Context, opts PulsarOptions, lib string, c classes) (_ *Pulsar, err error) {
	b := &Pulsar{opts: opts, lib: lib, classes: c}
	if b.ports, err = freePorts(3); err != nil {
		return nil, err
	}
	if b.process, err = newProcess(pulsarJars.name); err != nil {
		return nil, err
	}
	if err := b.create(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Pulsar) create(ctx context.Context) error {
	if b.opts.Secure {
		if err := b.writeCerts(); err != nil {
			return err
		}
		if err := b.writeToken(); err != nil {
			return err
		}
	}
	if err := os.WriteFile(b.logConfig(), pulsarLog, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(b.configFile(), []byte(b.config()), 0o600); err != nil {
		return err
	}
	return b.Start(ctx)
}

func (b *Pulsar) configFile() string { return filepath.Join(b.dir, "standalone.conf") }
func (b *Pulsar) logConfig() string  { return filepath.Join(b.dir, "log4j2.xml") }

// Start starts a broker that was stopped or killed, on the same folder and ports. It returns when the broker
// has answered for each topic.
func (b *Pulsar) Start(ctx context.Context) error {
	// Use only the quick compiler: tests are too short for the other one to pay.
	args := append([]string{"-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, b.classes.options()...)
	args = append(args, "-Dlog4j.configurationFile="+b.logConfig(), "-cp", filepath.Join(b.lib, "*"),
		"org.apache.pulsar.PulsarStandaloneStarter", "--config", b.configFile(), "--no-functions-worker", "--no-stream-storage",
		"-a", "127.0.0.1", "--bookkeeper-port", fmt.Sprint(b.ports[2]), "--metadata-dir", filepath.Join(b.dir, "data", "metadata"), "--bookkeeper-dir", filepath.Join(b.dir, "data", "bookkeeper"))
	cmd := exec.Command("java", args...)
	cmd.Dir = b.dir // it writes files into its working folder
	if err := b.start(ctx, cmd, b.opts.Log, b.answers); err != nil {
		return err
	}
	return b.hasTopics(ctx)
}

func (b *Pulsar) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a request that comes too early may hang
	defer cancel()
	_, err := b.Admin(ctx, "GET", "namespaces/public/default", nil)
	return err
}

// hasTopics waits until the broker has loaded each topic, or says that it cannot. On a busy machine a topic
// of a broker that was killed may hang until the broker gives up, after topicLoadTimeoutSeconds (60). The
// next request loads it.
func (b *Pulsar) hasTopics(ctx context.Context) error {
	for _, topic := range b.created {
		for range 3 {
			_, err := b.Admin(ctx, "GET", topic, nil)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

// config is the text of standalone.conf. The sizes fit a test.
func (b *Pulsar) config() string {
	entries := b.opts.EntriesPerLedger
	if entries == 0 {
		entries = 1000
	}
	p := map[string]string{
		"clusterName":          "standalone",
		"brokerServicePort":    fmt.Sprint(b.ports[0]),
		"webServicePort":       fmt.Sprint(b.ports[1]),
		"bindAddress":          "127.0.0.1",
		"advertisedAddress":    "127.0.0.1",
		"listeningInterface":   "lo", // else the bookie listens on all addresses
		"allowLoopback":        "true",
		"allowEphemeralPorts":  "true", // else the bookie does not take its port, but a free one that others may take before it listens
		"journalSyncData":      "false",
		"diskUsageThreshold":   "0.99",
		"numIOThreads":         "2",
		"numHttpServerThreads": "8",

		"diskUsageWarnThreshold":                    "0.98",
		"managedLedgerDefaultEnsembleSize":          "1",
		"managedLedgerDefaultWriteQuorum":           "1",
		"managedLedgerDefaultAckQuorum":             "1",
		"managedLedgerCacheSizeMB":                  "64",
		"dbStorage_writeCacheMaxSizeMb":             "64",
		"dbStorage_readAheadCacheMaxSizeMb":         "32",
		"brokerDeleteInactiveTopicsEnabled":         "false",
		"defaultRetentionTimeInMinutes":             "-1",
		"defaultRetentionSizeInMB":                  "-1",
		"managedLedgerMaxEntriesPerLedger":          fmt.Sprint(entries),
		"managedLedgerMinLedgerRolloverTimeMinutes": "0",
		"transactionCoordinatorEnabled":             "true",
	}
	if b.opts.Secure {
		p["brokerServicePort"], p["webServicePort"] = "", ""
		p["brokerServicePortTls"], p["webServicePortTls"] = fmt.Sprint(b.ports[0]), fmt.Sprint(b.ports[1])
		p["tlsCertificateFilePath"], p["tlsKeyFilePath"] = filepath.Join(b.dir, certOnly("broker.pem")), filepath.Join(b.dir, "broker.pem")
		p["tlsTrustCertsFilePath"] = b.CA()
		p["authenticationEnabled"], p["authorizationEnabled"] = "true", "true"
		p["authenticationProviders"] = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken,org.apache.pulsar.broker.authentication.AuthenticationProviderTls"
		p["tokenSecretKey"] = "file://" + b.keyFile()
		p["superUserRoles"] = User + ",client.pem" // client.pem is the common name in ClientCert
		p["brokerClientTlsEnabled"], p["brokerClientTrustCertsFilePath"] = "true", b.CA()
		p["brokerClientAuthenticationPlugin"] = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
		p["brokerClientAuthenticationParameters"] = "token:" + b.token
	}
	for k, v := range b.opts.Config {
		p[k] = v
	}
	var lines []string
	for k, v := range p {
		lines = append(lines, k+"="+v+"\n")
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

func (b *Pulsar) keyFile() string { return filepath.Join(b.dir, "token.key") }

// writeToken makes a secret, and a token for User that is signed with the secret.
func (b *Pulsar) writeToken() error {
	var key [32]byte
	_, _ = rand.Read(key[:])
	if err := os.WriteFile(b.keyFile(), key[:], 0o600); err != nil {
		return err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + enc.EncodeToString([]byte(`{"sub":"`+User+`"}`))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(text))
	b.token = text + "." + enc.EncodeToString(mac.Sum(nil))
	return os.WriteFile(b.TokenFile(), []byte(b.token), 0o600)
}

// Token is the token for a secure broker. TokenFile is a file that holds it.
func (b *Pulsar) Token() string     { return b.token }
func (b *Pulsar) TokenFile() string { return filepath.Join(b.dir, "token.txt") }

// URL is the address of the service. AdminURL is that of the admin API.
func (b *Pulsar) URL() string {
	if b.opts.Secure {
		return fmt.Sprintf("pulsar+ssl://127.0.0.1:%d", b.ports[0])
	}
	return fmt.Sprintf("pulsar://127.0.0.1:%d", b.ports[0])
}

func (b *Pulsar) AdminURL() string {
	if b.opts.Secure {
		return fmt.Sprintf("https://127.0.0.1:%d", b.ports[1])
	}
	return fmt.Sprintf("http://127.0.0.1:%d", b.ports[1])
}

// Classpath has Pulsar's client, for Java programs. JavaOptions make such a program start sooner, if the
// program's own folders come after Classpath.
func (b *Pulsar) Classpath() string     { return filepath.Join(b.lib, "*") }
func (b *Pulsar) JavaOptions() []string { return b.classes.read().options() }
