package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/apache/pulsar-client-go/oauth2"
	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/internal/pulsarwire"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const retryAfter = 300 * time.Millisecond

func temporary(err error) error { return &sources.Temporary{Err: err, Backoff: retryAfter} }

func isTemporary(err error) bool {
	_, ok := errors.AsType[*sources.Temporary](err)
	return ok
}

// notFound is the admin API's 404.
type notFound struct{ what, reason string }

func (e *notFound) Error() string { return e.what + ": " + e.reason }

func isNotFound(err error) bool {
	_, ok := errors.AsType[*notFound](err)
	return ok
}

// answered turns an answer of the admin API that is not 2xx into an error.
func answered(where, what string, status int, reason string) error {
	err := fmt.Errorf("%s: %s: %d %s: %s", where, what, status, http.StatusText(status), reason)
	switch {
	case status == http.StatusNotFound:
		return &notFound{what, reason}
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: check pulsar.auth, or add it", err)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w: allow this role to consume the topic, and to read its stats with the admin API", err)
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return temporary(err)
	}
	return err
}

// explain turns the error of a request into one in the user's words. It is a
// *sources.Temporary if another try may help.
func explain(ctx context.Context, where string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if isTemporary(err) {
		return err
	}
	err = brokers.NotTheEnd(err)
	switch fault := brokers.TLSFaultOf(err); {
	case fault == brokers.BadCertificate:
		return fmt.Errorf("%s shows a certificate that is not accepted: check pulsar.tls.ca (of an OAuth2 issuer: pulsar.auth.oauth2.ca), and the host's name (%w)", where, err)
	case fault == brokers.NotTLS:
		return fmt.Errorf("%s does not speak TLS on this port: check the address, or write pulsar:// and http:// (%w)", where, err)
	case fault == brokers.OursRefused:
		return fmt.Errorf("%s refused our side of TLS: check pulsar.auth.cert and pulsar.auth.key (%w)", where, err)
	}
	if e, ok := errors.AsType[*oauth2.TokenError](err); ok {
		return fmt.Errorf("the issuer gives no token for %s: check pulsar.auth.oauth2, and the client's secret (%s: %s)", where, e.ErrorCode, e.ErrorDescription)
	}
	if e, ok := errors.AsType[*noToken](err); ok {
		return &sources.Temporary{Err: fmt.Errorf("%w, so nobody logs in at %s: check that pulsar.auth.oauth2.issuer can be reached from here", e, where), Backoff: retryAfter, Away: true}
	}
	if e, ok := errors.AsType[*pulsarwire.Refused](err); ok {
		switch e.Code {
		case pulsarwire.AuthenticationError, pulsarwire.AuthorizationError:
			return fmt.Errorf("%s refused the login: check pulsar.auth (%w)", where, err)
		case pulsarwire.InvalidTopicName, pulsarwire.UnsupportedVersion:
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		switch e.Result() {
		case client.AuthenticationError, client.AuthorizationError:
			return fmt.Errorf("%s refused the login: check pulsar.auth (%w)", where, err)
		case client.InvalidConfiguration, client.InvalidURL, client.InvalidTopicName, client.UnsupportedVersionError:
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	// What is left is a broker that is away, restarts, moves a topic, or is busy.
	return &sources.Temporary{Err: fmt.Errorf("%s does not answer: %w", where, err), Backoff: retryAfter, Away: true}
}
