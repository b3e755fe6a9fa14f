package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/headrace/headrace/internal/dataset"
)

// secure reads what the spec only names: certificates and passwords.
func (o *Options) secure(k *dataset.KafkaSpec, allowedRoots []string) error {
	var err error
	if k.TLS != nil {
		if o.TLS, err = tlsConfig(k.TLS); err != nil {
			return err
		}
	}
	if k.SASL == nil {
		return nil
	}
	secret, err := password(k.SASL, allowedRoots)
	if err != nil {
		return err
	}
	o.User = k.SASL.User
	switch k.SASL.Mechanism {
	case "plain":
		o.SASL = plain.Mechanism{Username: o.User, Password: secret}
	case "scram-sha-256":
		o.SASL, err = scram.Mechanism(scram.SHA256, o.User, secret)
	case "scram-sha-512":
		o.SASL, err = scram.Mechanism(scram.SHA512, o.User, secret)
	default:
		err = fmt.Errorf("kafka.sasl.mechanism %q is not known", k.SASL.Mechanism)
	}
	return err
}

func tlsConfig(t *dataset.KafkaTLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("kafka.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka.tls.ca: %s holds no certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("kafka.tls.cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// password is in a variable or a file of this machine. A spec comes over the
// network and may name any broker, so it may not name any secret: variables are
// those of headrace, files lie in the roots that an administrator allowed.
func password(s *dataset.KafkaSASL, allowedRoots []string) (string, error) {
	if s.PasswordEnv != "" {
		if !strings.HasPrefix(s.PasswordEnv, dataset.SecretPrefix) {
			return "", fmt.Errorf("kafka.sasl.password_env: %s does not begin with %s", s.PasswordEnv, dataset.SecretPrefix)
		}
		v, ok := os.LookupEnv(s.PasswordEnv)
		if !ok || v == "" {
			return "", fmt.Errorf("kafka.sasl.password_env: %s is not set here; set it for master and agents", s.PasswordEnv)
		}
		return v, nil
	}
	for _, root := range allowedRoots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(abs, s.PasswordFile)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		return readSecret(abs, rel)
	}
	return "", fmt.Errorf("kafka.sasl.password_file: %s is in no folder that is allowed here; start with --allow-root, or use password_env", s.PasswordFile)
}

// readSecret opens through the root, so that a link does not lead out of it.
func readSecret(root, name string) (string, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", fmt.Errorf("kafka.sasl.password_file: %w", err)
	}
	defer r.Close()
	text, err := r.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("kafka.sasl.password_file: %w", err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("kafka.sasl.password_file: %s is empty", filepath.Join(root, name))
	}
	return secret, nil
}
