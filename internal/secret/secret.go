// Package secret reads what a spec only names: certificates, passwords and tokens on
// this machine. Adapters of brokers and internal/connection use it.
package secret

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headrace/headrace/internal/dataset"
)

// TLS reads the files that a spec names; field is its place in the spec, for errors. The
// certificate and its key are read again for each connection, because they may be renewed.
func TLS(field string, t *dataset.TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.ca: %w", field, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca: %s holds no certificate", field, t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%s.cert and key: %w", field, err)
		}
		c.Certificates = []tls.Certificate{pair}
		c.GetClientCertificate = renewed(t.Cert, t.Key, &pair)
	}
	return c, nil
}

// renewed returns a function that gives a connection the certificate which the files hold now. If
// they cannot be read, as while they are being written, it gives the last one that could.
func renewed(cert, key string, last *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	return func(server *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if pair, err := tls.LoadX509KeyPair(cert, key); err == nil {
			last = &pair
		}
		if server.SupportsCertificate(last) != nil {
			return &tls.Certificate{}, nil // none, as crypto/tls does
		}
		return last, nil
	}
}

// Read gives a secret, whose fields in the spec begin with field ("kafka.sasl.password").
// It is in a variable or a file of this machine. A spec comes over the network and may name any
// broker, so it may name only some secrets: variables that begin with HEADRACE_, and files in the
// roots that an administrator allowed.
func Read(field string, s dataset.Password, allowedRoots []string) (string, error) {
	if s.Env != "" {
		if !strings.HasPrefix(s.Env, dataset.SecretPrefix) {
			return "", fmt.Errorf("%s_env: %s does not begin with %s", field, s.Env, dataset.SecretPrefix)
		}
		v, ok := os.LookupEnv(s.Env)
		if !ok || v == "" {
			return "", fmt.Errorf("%s_env: %s is not set here; set it for master and agents", field, s.Env)
		}
		return v, nil
	}
	for _, root := range allowedRoots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(abs, s.File)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		return readIn(field, abs, rel)
	}
	return "", fmt.Errorf("%s_file: %s is in no folder that is allowed here; start with --allow-root, or use %s_env", field, s.File, field)
}

// readIn opens through the root, so that a link does not lead out of it.
func readIn(field, root, name string) (string, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", fmt.Errorf("%s_file: %w", field, err)
	}
	defer r.Close()
	text, err := r.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("%s_file: %w", field, err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s_file: %s is empty", field, filepath.Join(root, name))
	}
	return secret, nil
}
