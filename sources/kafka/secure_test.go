//go:build kafka

package kafka

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
)

const secretVariable = "HEADRACE_TEST_KAFKA_PASSWORD"

func secured(addr, topic string, ca, mechanism string) *dataset.Spec {
	k := &Spec{Brokers: []string{addr}, Topics: []string{topic}, Start: "earliest", End: "latest", MaxRecord: 1 << 20}
	if ca != "" {
		k.TLS = &dataset.TLS{CA: ca}
	}
	if mechanism != "" {
		k.SASL = &SASL{Mechanism: mechanism, User: testbroker.User, Password: dataset.Password{Env: secretVariable}}
	}
	return &dataset.Spec{Name: "d", Source: k}
}

func TestEveryLoginReadsTheSame(t *testing.T) {
	b := realBroker(t)
	t.Setenv(secretVariable, testbroker.Password)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 2000, 100))
	for name, spec := range map[string]*dataset.Spec{
		"plain":              secured(b.SASLAddr(), topic, "", "plain"),
		"scram 256":          secured(b.SASLAddr(), topic, "", "scram-sha-256"),
		"scram 512":          secured(b.SASLAddr(), topic, "", "scram-sha-512"),
		"tls":                secured(b.TLSAddr(), topic, b.CA(), ""),
		"scram over tls":     secured(b.SASLTLSAddr(), topic, b.CA(), "scram-sha-512"),
		"plain over tls":     secured(b.SASLTLSAddr(), topic, b.CA(), "plain"),
		"no login, no tls":   secured(b.Addr(), topic, "", ""),
		"certificate":        withCert(secured(b.TLSAddr(), topic, b.CA(), ""), b.ClientCert()),
		"password in a file": inFile(t, secured(b.SASLAddr(), topic, "", "scram-sha-256")),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := openSpec(spec, dataset.Opening{AllowedRoots: []string{os.TempDir()}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := everything(t, s.(*Source)); len(got) != 2000 {
				t.Errorf("%d records", len(got))
			}
		})
	}
}

func withCert(spec *dataset.Spec, pem string) *dataset.Spec {
	spec.Source.(*Spec).TLS.Cert, spec.Source.(*Spec).TLS.Key = pem, pem
	return spec
}

func inFile(t *testing.T, spec *dataset.Spec) *dataset.Spec {
	t.Helper()
	name := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(name, []byte(testbroker.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Source.(*Spec).SASL.Password = dataset.Password{File: name}
	return spec
}

func TestARefusedConnectionSaysWhy(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	t.Setenv(secretVariable, "wrong-horse")
	for name, c := range map[string]struct {
		spec *dataset.Spec
		want string
	}{
		"wrong password, plain":     {secured(b.SASLAddr(), topic, "", "plain"), "check sasl.user"},
		"wrong password, scram 256": {secured(b.SASLAddr(), topic, "", "scram-sha-256"), "check sasl.user"},
		"wrong password, scram 512": {secured(b.SASLTLSAddr(), topic, b.CA(), "scram-sha-512"), "check sasl.user"},
		"unknown authority":         {withoutCA(secured(b.TLSAddr(), topic, b.CA(), "")), "check tls.ca"},
		"tls to a plain port":       {secured(b.Addr(), topic, b.CA(), ""), "leave tls out"},
		"plain to a tls port":       {secured(b.TLSAddr(), topic, "", ""), "this port wants tls or sasl"},
		"no login":                  {secured(b.SASLAddr(), topic, "", ""), "this port wants tls or sasl"},
		"login to a plain port":     {secured(b.Addr(), topic, "", "plain"), "leave sasl out"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := openSpec(c.spec, dataset.Opening{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.Partitions(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v\nand not %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "wrong-horse") {
				t.Error("the password is in the error")
			}
			var again *sources.Temporary
			if strings.Contains(name, "password") && errors.As(err, &again) {
				t.Error("a wrong password is tried again")
			}
		})
	}
}

func withoutCA(spec *dataset.Spec) *dataset.Spec {
	spec.Source.(*Spec).TLS.CA = ""
	return spec
}
