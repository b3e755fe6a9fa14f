package pulsar

import (
	"crypto/tls"
	"encoding/base64"
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
		o.Auth = func() (auth.Provider, error) {
			return auth.NewAuthenticationOAuth2WithParams(map[string]string{
				auth.ConfigParamType: auth.ConfigParamTypeClientCredentials, auth.ConfigParamIssuerURL: a.OAuth2.Issuer,
				auth.ConfigParamClientID: a.OAuth2.ClientID, auth.ConfigParamAudience: a.OAuth2.Audience, auth.ConfigParamScope: a.OAuth2.Scope,
				auth.ConfigParamTrustCertsFilePath: a.OAuth2.CA,
				auth.ConfigParamKeyFile:            "data:application/json;base64," + base64.StdEncoding.EncodeToString([]byte(key))})
		}
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
