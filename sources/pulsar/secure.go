package pulsar

import (
	"crypto/tls"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar/auth"

	"github.com/headrace/headrace/internal/secret"
)

// secure reads the certificates, tokens and keys that the spec names. The file of a token is
// read again at each login, so that the token can be renewed.
func (o *Options) secure(k *Spec, allowedRoots []string) error {
	var err error
	if k.TLS != nil {
		if o.TLS, err = secret.TLS("pulsar.tls", k.TLS); err != nil {
			return err
		}
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	switch a := k.Auth; {
	case a == nil && len(o.TLS.Certificates) > 0:
		pair := o.TLS.Certificates[0]
		o.Auth = func() (auth.Provider, error) {
			return auth.NewAuthenticationFromTLSCertSupplier(func() (*tls.Certificate, error) { return &pair, nil }), nil
		}
	case a == nil:
	case a.OAuth2 != nil:
		key, err := secret.Read("pulsar.auth.oauth2.key", a.OAuth2.key(), allowedRoots)
		if err != nil {
			return err
		}
		if o.login, err = newIssuer(*a.OAuth2, key); err != nil {
			return err
		}
		o.Auth = func() (auth.Provider, error) { return &issued{issuer: o.login}, nil }
	default:
		token := func() (string, error) {
			text, err := secret.Read("pulsar.auth.token", a.token(), allowedRoots)
			return strings.TrimSpace(text), err
		}
		if _, err := token(); err != nil {
			return err
		}
		o.Auth = func() (auth.Provider, error) { return auth.NewAuthenticationTokenFromSupplier(token), nil }
	}
	return nil
}
