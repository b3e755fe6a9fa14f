package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Error codes that decide more than whether to try again.
const (
	codeNone              = 0
	codeOutOfRange        = 1
	codeUnknownTopic      = 3
	codeUnknownTopicID    = 100
	codeInconsistentTopic = 103
)

const retryAfter = 200 * time.Millisecond

func temporary(err error) error { return &sources.Temporary{Err: err, Backoff: retryAfter} }

// away means that no broker answers for a partition now.
func away(err error) error {
	return &sources.Temporary{Err: err, Backoff: retryAfter, Away: true}
}

// explain turns the error of a request into one in the user's words. It is a
// *sources.Temporary if another try may help.
func (c *client) explain(ctx context.Context, err error) error {
	// If the caller has gone, that is not the broker's fault. Our own deadline is.
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	where := fmt.Sprintf("Kafka at %s", c.addr)
	closed := endOfConnection(err)
	err = brokers.NotTheEnd(err)
	var (
		temporaryNo *sources.Temporary
	)
	switch fault := brokers.TLSFaultOf(err); {
	case errors.As(err, &temporaryNo):
		return err
	case c.mechanism != "" && refusedLogin(err):
		return fmt.Errorf("%s refused user %q with %s: check sasl.user and the password it names (%w)", where, c.user, c.mechanism, err)
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		return fmt.Errorf("%s does not offer %s: change sasl.mechanism (%w)", where, c.mechanism, err)
	case errors.Is(err, kafkago.IllegalSASLState):
		return fmt.Errorf("%s takes no login on this port: check brokers, or leave sasl out (%w)", where, err)
	case fault == brokers.BadCertificate:
		return fmt.Errorf("%s shows a certificate that is not accepted: check tls.ca and tls.server_name (%w)", where, err)
	case fault == brokers.NotTLS:
		return fmt.Errorf("%s does not speak TLS on this port: check brokers, or leave tls out (%w)", where, err)
	case fault == brokers.OursRefused:
		return fmt.Errorf("%s refused our side of TLS: check tls.cert and tls.key (%w)", where, err)
	}
	var code kafkago.Error
	if errors.As(err, &code) {
		return passing(code, fmt.Errorf("%s: %w", where, err))
	}
	if errors.Is(err, errAnswer) || errors.Is(err, errShort) {
		return fmt.Errorf("%s: %w", where, err)
	}
	hint := ""
	if closed {
		hint = c.closedHint()
	}
	var network net.Error
	if hint != "" || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		return away(fmt.Errorf("%s does not answer%s: %w", where, hint, err))
	}
	return fmt.Errorf("%s: %w", where, err)
}

func endOfConnection(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}

// closedHint says what to check. A broker closes a connection that does not use the TLS or
// SASL that its port wants.
func (c *client) closedHint() string {
	switch {
	case c.transport.TLS == nil && c.mechanism == "":
		return " (it closed the connection; if it always does, this port wants tls or sasl)"
	case c.transport.TLS == nil:
		return " (it closed the connection; if it always does, this port wants tls or another login)"
	}
	return " (it closed the connection; if it always does, this port does not speak TLS: leave tls out)"
}

// refusedLogin recognises a refused login. kafka-go reports it differently for each
// mechanism.
func refusedLogin(err error) bool {
	return errors.Is(err, kafkago.SASLAuthenticationFailed) || strings.Contains(err.Error(), "SASL Authentication failed") ||
		strings.Contains(strings.ToLower(err.Error()), "invalid credentials")
}

// answered turns a code in an answer into an error.
func answered(code int16, what string) error {
	if code == codeNone {
		return nil
	}
	return passing(kafkago.Error(code), fmt.Errorf("%s: %w", what, kafkago.Error(code)))
}

// passing makes err temporary if Kafka's own client would try again after this code. kafka-go's
// Temporary is false for BrokerNotAvailable and ReplicaNotAvailable, so they are named here.
func passing(code kafkago.Error, err error) error {
	switch {
	case code == kafkago.LeaderNotAvailable, code == kafkago.BrokerNotAvailable, code == kafkago.ReplicaNotAvailable:
		return away(err)
	case code.Temporary():
		return temporary(err)
	}
	return err
}
