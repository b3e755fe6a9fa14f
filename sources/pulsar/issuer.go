package pulsar

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/oauth2"
	"github.com/apache/pulsar-client-go/pulsar/auth"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/secret"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	tokenWithin = 10 * time.Second // the time for a token; also for each request to the issuer
	tokenEarly  = time.Minute      // so long before it expires, another one is asked for
)

// issuer logs in with the tokens of an OAuth2 issuer. If the issuer never answers, the official
// provider waits for ever, and nothing can end the wait. Here one goroutine asks, for at most
// 2*tokenWithin. A caller that needs the token waits at most for tokenWithin, and no longer
// than until its context ends or close is called. All clients of a source share the token.
type issuer struct {
	o      OAuth2
	key    oauth2.KeyFile
	http   *http.Client
	within time.Duration

	ctx context.Context // ends with close
	end context.CancelFunc

	mu     sync.Mutex
	token  []byte
	until  time.Time
	asking *asking
}

// asking is a request for a token that is on its way, or was.
type asking struct {
	done  chan struct{}
	token []byte
	err   error
}

// noToken says that the issuer gave no token.
type noToken struct {
	issuer string
	err    error
}

func (e *noToken) Error() string { return fmt.Sprintf("issuer %s gives no token: %v", e.issuer, e.err) }
func (e *noToken) Unwrap() error { return e.err }

var errSlowIssuer = errors.New("no answer in time")

func newIssuer(o OAuth2, key string) (*issuer, error) {
	a := &issuer{o: o, within: tokenWithin}
	if err := json.Unmarshal([]byte(key), &a.key); err != nil {
		return nil, fmt.Errorf("pulsar.auth.oauth2.key: it must be JSON with client_id and client_secret: %w", err)
	}
	config, err := secret.TLS("pulsar.auth.oauth2", &dataset.TLS{CA: o.CA})
	if err != nil {
		return nil, err
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.TLSClientConfig, tr.DisableKeepAlives = config, true // it is asked about once an hour
	a.http = &http.Client{Transport: tr, Timeout: a.within}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a, nil
}

// close ends all waits for a token. It does not wait for the issuer.
func (a *issuer) close() { a.end() }

// get returns a token: the last one, or a new one when that expires.
func (a *issuer) get(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.within, &noToken{a.o.Issuer, errSlowIssuer})
	defer cancel()
	a.mu.Lock()
	if a.token != nil && time.Until(a.until) > tokenEarly {
		defer a.mu.Unlock()
		return a.token, nil
	}
	r := a.asking
	if r == nil {
		r = &asking{done: make(chan struct{})}
		a.asking = r
		go a.ask(r)
	}
	a.mu.Unlock()
	select {
	case <-r.done:
		return r.token, r.err
	case <-a.ctx.Done():
		return nil, brokers.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (a *issuer) ask(r *asking) {
	asked := time.Now()
	t, err := a.request()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		r.err = &noToken{a.o.Issuer, err}
	} else {
		r.token = []byte(t.AccessToken)
		a.token, a.until = r.token, asked.Add(time.Duration(t.ExpiresIn)*time.Second)
	}
	a.asking = nil
	close(r.done)
}

// request asks the issuer for a token.
func (a *issuer) request() (*oauth2.TokenResult, error) {
	at, err := oauth2.GetOIDCWellKnownEndpointsFromIssuerURLWithClient(cmp.Or(a.o.Issuer, a.key.IssuerURL), a.http)
	if err != nil {
		return nil, err
	}
	return oauth2.NewTokenRetriever(a.http).ExchangeClientCredentials(oauth2.ClientCredentialsExchangeRequest{
		TokenEndpoint: at.TokenEndpoint, Audience: a.o.Audience, ClientID: cmp.Or(a.key.ClientID, a.o.ClientID), ClientSecret: a.key.ClientSecret,
		Scopes: append(strings.Fields(a.o.Scope), strings.Fields(a.key.Scope)...), AuthMethod: oauth2.TokenEndpointAuthMethodClientSecretPost})
}

// refused forgets a token that was not accepted.
func (a *issuer) refused(token []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if string(a.token) == string(token) {
		a.token = nil
	}
}

// issued is an issuer as the official client and the admin API's client need it.
type issued struct {
	*issuer
	base http.RoundTripper
}

var _ auth.Provider = (*issued)(nil)

func (*issued) Init() error                                  { return nil }
func (*issued) Name() string                                 { return "token" }
func (*issued) GetTLSCertificate() (*tls.Certificate, error) { return nil, nil }
func (p *issued) GetData() ([]byte, error)                   { return p.get(p.ctx) }
func (*issued) Close() error                                 { return nil }
func (p *issued) Transport() http.RoundTripper               { return p }
func (p *issued) WithTransport(base http.RoundTripper) error { p.base = base; return nil }

// RoundTrip tries a request again, once, with a new token if the old one was refused. The old one
// may have ended early: the issuer has other keys now, or this machine was suspended.
func (p *issued) RoundTrip(req *http.Request) (*http.Response, error) {
	for again := false; ; again = true {
		token, err := p.get(req.Context())
		if err != nil {
			return nil, err
		}
		try := req.Clone(req.Context())
		try.Header.Set("Authorization", "Bearer "+string(token))
		if again && req.GetBody != nil {
			if try.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		res, err := p.base.RoundTrip(try)
		if err != nil || res.StatusCode != http.StatusUnauthorized {
			return res, err
		}
		if p.refused(token); again || req.Body != nil && req.GetBody == nil {
			return res, nil
		}
		_ = res.Body.Close()
	}
}
