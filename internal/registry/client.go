package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/schema"
	"github.com/headrace/headrace/sources"
)

// Secret reads a password or a token. It is asked for each request, so that the secret can be
// replaced while the process runs.
type Secret func() (string, error)

// Config says how a registry is reached.
type Config struct {
	URL      string
	User     string // HTTP basic authentication, if it is set
	Password Secret
	Token    Secret // a bearer token; nil: none
	TLS      *tls.Config
}

const (
	askWithin    = 15 * time.Second
	firstBackoff = 100 * time.Millisecond
	mostBackoff  = 5 * time.Second
	maxAnswer    = 2*schema.MaxText + 1<<16 // the text is escaped in it
)

// answer is what a registry says of an id, or of a version of a subject.
type answer struct {
	Type       string      `json:"schemaType"` // "": AVRO
	Text       string      `json:"schema"`
	References []reference `json:"references"`
}

type reference struct {
	Name    string      `json:"name"`
	Subject string      `json:"subject"`
	Version json.Number `json:"version"`
}

// unknown means that the registry has no such schema.
type unknown struct{ said string }

func (e *unknown) Error() string { return e.said }

type client struct {
	config Config
	http   *http.Client
}

func newClient(c Config) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = c.TLS
	t.MaxIdleConnsPerHost = 2
	return &client{config: c, http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a login goes to no other place
	}}}
}

// get asks for what lies at a path ("schemas/ids/7").
func (c *client) get(ctx context.Context, path string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.config.URL, "/")+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json")
	if err := c.login(req); err != nil {
		return nil, &sources.Temporary{Err: fmt.Errorf("schema registry %s: %w", c.config.URL, err)}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, c.failed(err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("schema registry %s: %s is longer than %d bytes", c.config.URL, path, maxAnswer)
	}
	return c.read(path, resp.StatusCode, body)
}

// login adds the login to a request. While somebody replaces a secret, its file may be missing.
func (c *client) login(req *http.Request) error {
	secret := c.config.Token
	if secret == nil && c.config.User != "" {
		secret = c.config.Password
	}
	if secret == nil {
		return nil
	}
	text, err := secret()
	switch {
	case err != nil:
		return err
	case c.config.Token != nil:
		req.Header.Set("Authorization", "Bearer "+text)
	default:
		req.SetBasicAuth(c.config.User, text)
	}
	return nil
}

// read says what an answer means.
func (c *client) read(path string, status int, body []byte) (*answer, error) {
	var told struct {
		Code    int    `json:"error_code"`
		Message string `json:"message"`
	}
	isJSON := json.Unmarshal(body, &told) == nil
	said := fmt.Sprintf("schema registry %s answers %d to %s: %s", c.config.URL, status, path, brief(told.Message, body))
	switch {
	case status == http.StatusOK:
		var a answer
		if err := json.Unmarshal(body, &a); err != nil || a.Text == "" {
			return nil, fmt.Errorf("schema registry %s: its answer to %s holds no schema: is this the address of a registry?", c.config.URL, path)
		}
		return &a, nil
	case status == http.StatusNotFound && isJSON && told.Code != 0:
		return nil, &unknown{said: "is not in the registry: " + said}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, fmt.Errorf("%s. Give its connection a login that may read schemas, and resume the dataset", said)
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		return nil, &sources.Temporary{Err: errors.New(said)}
	}
	return nil, fmt.Errorf("%s. Is this the address of a registry (with its path, as in http://registry:8080/apis/ccompat/v7)?", said)
}

func brief(message string, body []byte) string {
	if message == "" {
		message = strings.TrimSpace(string(body))
	}
	if len(message) > 200 {
		message = message[:200] + "..."
	}
	return fmt.Sprintf("%q", message)
}

// failed classifies an error of the connection. Certificates do not get better by waiting.
func (c *client) failed(err error) error {
	err = fmt.Errorf("schema registry %s does not answer: %w", c.config.URL, inner(err))
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%w. Name its certificate authority in its connection (ca)", err)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return err
	}
	return &sources.Temporary{Err: err}
}

// inner takes away the method and the address that package http adds.
func inner(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
