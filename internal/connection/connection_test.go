package connection

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources/kafka"
	"github.com/headrace/headrace/sources/pulsar"
	"github.com/headrace/headrace/sources/rocketmq"
)

func init() { dataset.Register(kafka.Kind, pulsar.Kind, rocketmq.Kind) }

const registered = `
k: {kafka: {brokers: [kafka-1:9093], tls: {}, sasl: {mechanism: plain, user: trainer, password_file: /run/secrets/kafka}}}
p: {pulsar: {service: "pulsar+ssl://pulsar-1:6651", admin: "https://pulsar-1:8443", auth: {token_env: HEADRACE_PULSAR_TOKEN}}}
r: {rocketmq: {name_servers: [mq-1:9876], acl: {access_key: headrace, secret_key_env: HEADRACE_ROCKETMQ_KEY}}}
`

func book(t *testing.T, text string, listed ...string) (*Book, error) {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	return Parse(n.Content[0], "headrace.yaml", listed)
}

func parse(text string) (*dataset.Spec, error) {
	return dataset.Parse([]byte("name: d\n"+text+"\ndecode: lines\n"), "")
}

func TestASpecNamesAConnectionOfEachKindAndGetsItsAddressAndLogin(t *testing.T) {
	b, err := book(t, registered)
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]dataset.Reach{
		"kafka: {connection: k, topic: clicks}":    {Addresses: []string{"kafka-1:9093"}},
		"pulsar: {connection: p, topic: clicks}":   {Addresses: []string{"pulsar-1:6651", "pulsar-1:8443"}},
		"rocketmq: {connection: r, topic: clicks}": {Addresses: []string{"mq-1:9876"}},
	} {
		spec, err := parse(part)
		if err != nil {
			t.Fatal(err)
		}
		text, err := spec.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := dataset.FromJSON(text) // the form in which a master stores a spec and an agent gets it
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		full, o, err := b.resolve(again, dataset.Opening{})
		if err != nil {
			t.Fatal(err)
		}
		if got := full.ReachOf(); strings.Join(got.Addresses, " ") != strings.Join(want.Addresses, " ") || !got.Secret || len(o.AllowedRoots) != 1 {
			t.Errorf("%s: %+v", part, got)
		}
		if again.ReachOf().Secret || strings.Contains(string(text), ":9") {
			t.Errorf("the spec contains more of the connection than its name: %s", text)
		}
	}
}

func TestASpecNeverHasAConnectionAndAnAddress(t *testing.T) {
	for _, part := range []string{
		"kafka: {connection: k, brokers: [evil:9092], topic: a}", "kafka: {connection: k, topic: a, tls: {}}",
		"kafka: {connection: k, topic: a, sasl: {mechanism: plain, user: u, password_env: HEADRACE_P}}",
		`pulsar: {connection: p, admin: "http://evil:8080", topic: a}`, "pulsar: {connection: p, topic: a, auth: {token_env: HEADRACE_T}}",
		"rocketmq: {connection: r, name_servers: [evil:9876], topic: a}",
	} {
		if _, err := parse(part); err == nil || !strings.Contains(err.Error(), "does not go with connection") {
			t.Errorf("%s: got the error %v, want one with %q", part, err, "does not go with connection")
		}
	}
	for _, text := range []string{
		`{"name":"d","kafka":{"connection":"k","brokers":["evil:9092"],"topics":["a"]},"decode":{"format":"lines"}}`,
	} {
		if _, err := dataset.FromJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), "does not go with an address") {
			t.Errorf("%s: got the error %v, want one with %q", text, err, "does not go with an address")
		}
	}
}

func TestASecretOfASpecGoesOnlyToBrokersThatTheOperatorLists(t *testing.T) {
	for part, addresses := range map[string]string{
		"kafka: {brokers: [a:1, b:2], topic: t, tls: {}, sasl: {mechanism: plain, user: u, password_env: HEADRACE_KAFKA_PASSWORD}}":           "a:1 b:2",
		"kafka: {brokers: [a:1], topic: t, sasl: {mechanism: scram-sha-256, user: u, password_file: /etc/shadow}}":                            "a:1",
		"kafka: {brokers: [a:1], topic: t, tls: {cert: /c, key: /k}}":                                                                         "a:1",
		`pulsar: {service: "pulsar+ssl://a,b:7", admin: "https://c", topic: t, auth: {token_env: HEADRACE_T}}`:                                "a:6651 b:7 c:443",
		`pulsar: {service: "pulsar+ssl://a", admin: "https://c", topic: t, auth: {oauth2: {issuer: "https://login/x", key_env: HEADRACE_T}}}`: "a:6651 c:443 login:443",
		"rocketmq: {name_servers: [a:1], topic: t, acl: {access_key: k, secret_key_env: HEADRACE_K}}":                                         "a:1",
	} {
		spec, err := parse(part)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Fields(addresses)
		for missing := range all {
			listed := append(append([]string{"z:1"}, all[:missing]...), all[missing+1:]...)
			_, _, err := (&Book{listed: listed}).resolve(spec, dataset.Opening{})
			if err == nil || !strings.Contains(err.Error(), "--allow-broker "+all[missing]) {
				t.Errorf("%s without %s: got the error %v, want one with %q", part, all[missing], err, "--allow-broker "+all[missing])
			}
		}
		if _, o, err := (&Book{listed: all}).resolve(spec, dataset.Opening{}); err != nil || o.AllowedRoots != nil {
			t.Errorf("%s, listed: %v", part, err)
		}
	}
	open, err := parse("kafka: {brokers: [a:1], topic: t}")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (&Book{}).resolve(open, dataset.Opening{}); err != nil {
		t.Errorf("a spec without a secret: %v", err)
	}
}

func TestALoginInClearTextIsRefusedOffLoopback(t *testing.T) {
	const login = "sasl: {mechanism: plain, user: u, password_env: HEADRACE_P}"
	for text, refused := range map[string]bool{
		"x: {kafka: {brokers: [kafka-1:9092], " + login + "}}":                                                  true,
		"x: {kafka: {brokers: [\"127.0.0.1:9092\", kafka-1:9092], " + login + "}}":                              true,
		"x: {kafka: {brokers: [\"127.0.0.1:9092\"], " + login + "}}":                                            false,
		"x: {kafka: {brokers: [kafka-1:9092], tls: {}, " + login + "}}":                                         false,
		`x: {pulsar: {service: "pulsar://p:6650", admin: "https://p", auth: {token_env: HEADRACE_T}}}`:          true,
		`x: {pulsar: {service: "pulsar+ssl://p:6651", admin: "http://p:8080", auth: {token_env: HEADRACE_T}}}`:  true,
		`x: {pulsar: {service: "pulsar+ssl://p:6651", admin: "https://p:8443", auth: {token_env: HEADRACE_T}}}`: false,
		`x: {rocketmq: {name_servers: [mq:9876], acl: {access_key: k, secret_key_env: HEADRACE_K}}}`:            false,
	} {
		if _, err := book(t, text); (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "in clear text") {
			t.Errorf("%s: %v", text, err)
		}
	}
	spec, err := parse("kafka: {brokers: [kafka-1:9092], topic: t, " + login + "}")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := (&Book{listed: []string{"kafka-1:9092"}}).resolve(spec, dataset.Opening{}); err == nil || !strings.Contains(err.Error(), "in clear text") {
		t.Errorf("a listed broker: got the error %v, want one with %q", err, "in clear text")
	}
}

func TestMistakesInConnectionsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"x: {kafka: {topic: a}}": "no such field",
		"x: {kafka: {}}":         "kafka.brokers",
		"x: {kafka: {brokers: [a:1]}, pulsar: {service: x}}": "a connection is of one kind",
		"x: {}":                      "names no kind of broker",
		"x: {files: {root: /}}":      "no such field",
		"x: {kafka: {brokers: [a]}}": "is not host:port",
		"x: {kafka: {brokers: [a:1], sasl: {mechanism: plain}}}": "kafka.sasl",
		"[a]": "must be a mapping",
		"{x: {kafka: {brokers: [a:1]}}, x: {kafka: {brokers: [b:1]}}}":                       "x is registered twice",
		"{x: {s3: {anonymous: true}}, x: {s3: {}}}":                                          "x is registered twice",
		`{x: {registry: {url: "https://r:1"}}, x: {registry: {url: "https://another:1"}}}`:   "x is registered twice",
		`{x: {kafka: {brokers: [a:1]}}, x: {s3: {}}, y: {registry: {url: "https://r:1"}}}`:   "x is registered twice",
		`{x: {registry: {url: "https://r:1"}}, y: {s3: {}}, x: {kafka: {brokers: ["a:1"]}}}`: "x is registered twice",
	} {
		if _, err := book(t, text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "connections: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
	b, err := book(t, registered)
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]string{"kafka: {connection: kk, topic: a}": "no connection kk is registered here", "kafka: {connection: p, topic: a}": "is a connection to pulsar"} {
		spec, err := parse(part)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Open(spec, dataset.Opening{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want one with %q", part, err, want)
		}
	}
}
