//go:build pulsar

package pulsar

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
)

// anIssuer gives the broker's token to a client that knows the secret (RFC 6749, section 4.4), over TLS with a
// certificate of its own.
func anIssuer(t *testing.T, b *testbroker.Pulsar) (address, ca string) {
	t.Helper()
	var server *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"token_endpoint": server.URL + "/token"})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("grant_type") != "client_credentials" || r.FormValue("client_id") != "trainers" || r.FormValue("client_secret") != "secret" ||
			r.FormValue("audience") != "urn:pulsar" || r.FormValue("scope") != "read" {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client", "error_description": "no such client"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": b.Token(), "token_type": "Bearer", "expires_in": 3600})
	})
	server = httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "issuer.pem")
	writeFile(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	return server.URL, ca
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// pair writes the certificate and the key of one file into two files.
func pair(t *testing.T, both, folder string) (cert, key string) {
	t.Helper()
	rest, err := os.ReadFile(both)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(folder, "client-cert.pem"), filepath.Join(folder, "client-key.pem")
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		to := key
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			to = cert
		}
		writeFile(t, to, string(pem.EncodeToMemory(block)))
	}
	return cert, key
}

// A spec may log in with a token in a file, in a variable, from an OAuth2 issuer or of an operator's
// connection, or with a client's certificate. Each spec makes its subscriptions and reads. If a part is
// missing or wrong, the error says what to repair.
func TestASpecLogsInOverTLSByTokenByOAuth2AndByCertificate(t *testing.T) {
	b := ownBroker(t, testbroker.PulsarOptions{Secure: true})
	topic := newTopic(t, b, 2)
	folder := t.TempDir()
	wrong, secret, guessed := filepath.Join(folder, "wrong"), filepath.Join(folder, "secret.json"), filepath.Join(folder, "guessed.json")
	t.Setenv("HEADRACE_TEST_TOKEN", b.Token())
	writeFile(t, wrong, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.aaaa")
	writeFile(t, secret, `{"type": "client_credentials", "client_id": "trainers", "client_secret": "secret"}`)
	writeFile(t, guessed, `{"type": "client_credentials", "client_id": "trainers", "client_secret": "guess"}`)
	from, issuersCA := anIssuer(t, b)
	cert, key := pair(t, b.ClientCert(), folder)
	_, otherKey := pair(t, filepath.Join(b.Dir(), "broker.pem"), t.TempDir())
	n := 0
	parse := func(fields string) *dataset.Spec {
		n++
		spec, err := dataset.Parse(fmt.Appendf(nil, "name: secure-%d\npulsar: {topic: %s%s}\ndecode: lines\n", n, topic, fields), "")
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	at := fmt.Sprintf(", service: %q, admin: %q", b.URL(), b.AdminURL())
	read := func(spec *dataset.Spec) error {
		src, err := openSpec(spec, dataset.Opening{AllowedRoots: []string{folder, b.Dir()}})
		if err != nil {
			return err
		}
		defer src.Close()
		ids, err := src.Partitions(t.Context())
		if err != nil {
			return err
		}
		if err := src.(sources.Retainer).Begin(t.Context(), ids); err != nil {
			return err
		}
		for _, id := range ids {
			// The connection that reads logs in too.
			r, err := src.(*Source).open(t.Context(), src.(*Source).All()[id], 0, 0)
			if err != nil {
				return err
			}
			r.close()
		}
		return nil
	}
	open := func(security string) error { return read(parse(at + security)) }
	tls := ", tls: {ca: " + b.CA() + "}"
	oauth2 := func(key, more string) string {
		return fmt.Sprintf(", auth: {oauth2: {issuer: %q, audience: 'urn:pulsar', scope: read, key_file: %s%s}}", from, key, more)
	}
	for what, security := range map[string]string{
		"a token":               tls + ", auth: {token_file: " + b.TokenFile() + "}",
		"a token in a variable": tls + ", auth: {token_env: HEADRACE_TEST_TOKEN}",
		"OAuth2":                tls + oauth2(secret, ", ca: "+issuersCA),
		"a certificate":         fmt.Sprintf(", tls: {ca: %s, cert: %s, key: %s}", b.CA(), cert, key),
	} {
		if err := open(security); err != nil {
			t.Errorf("with %s: %v", what, err)
		}
	}
	// A connection of the operator, which the spec only names.
	var registered yaml.Node
	if err := yaml.Unmarshal([]byte("pulsar: {"+strings.TrimPrefix(at, ", ")+tls+", auth: {token_env: HEADRACE_TEST_TOKEN}}"), &registered); err != nil {
		t.Fatal(err)
	}
	connection, err := dataset.ParseConnection(registered.Content[0], "settings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec := parse(", connection: main")
	spec.Source = spec.Source.(dataset.Reaching).Connect(connection)
	if err := read(spec); err != nil {
		t.Errorf("with a connection: %v", err)
	}
	for security, want := range map[string]string{
		tls: "pulsar.auth",
		tls + ", auth: {token_file: " + wrong + "}":                               "pulsar.auth",
		", auth: {token_file: " + b.TokenFile() + "}":                             "pulsar.tls.ca",
		tls + oauth2(guessed, ", ca: "+issuersCA):                                 "pulsar.auth.oauth2",
		tls + oauth2(secret, ""):                                                  "pulsar.auth.oauth2.ca",
		fmt.Sprintf(", tls: {ca: %s, cert: %s, key: %s}", b.CA(), cert, otherKey): "pulsar.tls",
	} {
		if err := open(security); err == nil || isTemporary(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error %v must name %s", security, err, want)
		}
	}
}
